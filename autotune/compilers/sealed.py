"""Folders that are made once, whole, and sealed: content-addressed, shared by threads, processes and users.

An entry is made in a temporary folder and renamed into place, so a reader never sees half of one. Its record names the
hash of every file that matters, and carries a seal of its own: what was truncated, changed or lost is made again.
Processes that want the same entry wait for one to make it (a file lock, which the kernel drops when its holder dies).

In a folder that several users can write, each user's entries are that user's; who uses those of others is told so.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.compilers.leases import FOLDER as LEASES
from autotune.compilers.leases import Leases, open_lock
from autotune.core.errors import BuildError, SharedCacheWarning
from autotune.core.owners import others_in, user_name

RECORD = "artifact.json"
WORKSPACES, LOCKS = "tmp", "locks"
APART = frozenset((WORKSPACES, LOCKS, LEASES))
"""Folders of a cache that hold no entries."""

DAMAGED = ".damaged-"
"""In the name of an entry that its user alone can remove."""

_ATTEMPTS = 3
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH

Fill = Callable[[Path], Mapping[str, Any]]
"""Fills an empty folder, and says what is to be recorded; `files` are the names of those to be sealed."""

_Signature = tuple[int, ...]


class SealedFolders:
    """The entries below `root`, by kind and key. One object a root serves all threads (`sealed_folders`)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._leases = Leases(root, self._make_folder)
        self._sound: dict[Path, _Signature] = {}  # files whose content was right, as they were then
        self._warned = False

    def folder(self, kind: str, key: str) -> Path:
        return self.root / kind / key[:2] / key

    def find(self, kind: str, key: str) -> dict[str, Any] | None:
        """The record of an entry that is there and undamaged. It is in use until `give_back`."""
        self._leases.take(_name(kind, key))
        record = self._read(kind, key)
        if record is None:
            self.give_back(kind, key)
        return record

    def get(self, kind: str, key: str, fill: Fill) -> tuple[dict[str, Any], bool]:
        """The record of an entry, made if it is not there or is damaged, and whether it was made now.

        It is in use until `give_back`.

        Raises:
            BuildError: the cache cannot be written. And what `fill` raises.
        """
        with self._writing():
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._leases.take(_name(kind, key))  # before it is looked for: what is found is not removed
        try:
            for attempt in range(_ATTEMPTS):
                found = self._read(kind, key)
                if found is not None:
                    return found, False
                try:
                    return self._make_alone(kind, key, fill)
                except BuildError as error:  # somebody may be emptying the cache
                    if attempt + 1 == _ATTEMPTS or not isinstance(error.__cause__, FileNotFoundError):
                        raise
            raise AssertionError("the last attempt returns or raises")
        except BaseException:
            self.give_back(kind, key)
            raise

    def give_back(self, kind: str, key: str) -> None:
        """Say that an entry is in use once less: it may be removed where the cache is over its limit."""
        self._leases.give_back(_name(kind, key))

    def is_sound(self, kind: str, key: str) -> bool:
        """Whether an entry is undamaged, by the content of all its files."""
        for path in [path for path in list(self._sound) if path.is_relative_to(self.folder(kind, key))]:
            self._sound.pop(path, None)
        return self._read(kind, key) is not None

    def _read(self, kind: str, key: str) -> dict[str, Any] | None:
        folder = self.folder(kind, key)
        try:
            record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            sealed = record.pop("seal") == _seal(record) and (record["kind"], record["key"]) == (kind, key)
            if not sealed or not all(self._is_sound(folder / name, hash_) for name, hash_ in record["files"].items()):
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # absent or damaged: who needs it makes it
        self._warn_of_others(folder, record["files"])
        with contextlib.suppress(OSError):  # another user's
            os.utime(folder / RECORD)
        return record

    def _is_sound(self, path: Path, hash_: str) -> bool:
        status = path.stat()
        signature = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if self._sound.get(path) == signature:
            return True
        if file_hash(path) != hash_:
            return False
        self._sound[path] = signature
        return True

    def _warn_of_others(self, folder: Path, files: Mapping[str, str]) -> None:
        if self._warned:
            return
        kind = folder.parent.parent
        for path in (self.root, kind, folder.parent, folder, *(folder / name for name in files)):
            others = others_in(path)
            if others:
                self._warned = True
                warnings.warn(
                    f"{path} in the build cache can be written by {others}: builds are code that runs with your "
                    "rights; AUTOTUNE_CACHE names a folder of your own",
                    SharedCacheWarning,
                    stacklevel=2,
                )
                return

    def _make_alone(self, kind: str, key: str, fill: Fill) -> tuple[dict[str, Any], bool]:
        with self._lock(key):
            found = self._read(kind, key)  # another process may have made it while we waited
            return (found, False) if found is not None else (self._make(kind, key, fill), True)

    def _make(self, kind: str, key: str, fill: Fill) -> dict[str, Any]:
        with self._workspace(key) as workspace:
            folder = workspace / "entry"
            folder.mkdir()
            record = {"key": key, "kind": kind, **fill(folder)}
            record["files"] = {name: file_hash(folder / name) for name in record["files"]}
            record["seal"] = _seal(record)
            (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
            self._publish(folder, self.folder(kind, key))
        made = self._read(kind, key)
        if made is None:
            said = f"an entry vanished from the build cache {self.root}: does something delete files there?"
            raise BuildError(said) from FileNotFoundError(said)
        return made

    def _publish(self, folder: Path, entry: Path) -> None:
        self._make_folder(entry.parent)
        for path in (folder, *folder.rglob("*")):  # temporary folders are for one user alone
            path.chmod(0o755 if path.is_dir() else 0o644)
        with contextlib.suppress(FileNotFoundError):
            self._set_aside(entry, folder.parent / "damaged")
        try:
            folder.rename(entry)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else somebody's equal entry got there first
                raise

    def _set_aside(self, entry: Path, aside: Path) -> None:
        """What is damaged goes with the workspace; another user's stays under a name where nobody looks for it."""
        for place in (aside, entry.with_name(f"{entry.name}{DAMAGED}{uuid.uuid4().hex[:8]}")):
            try:
                entry.rename(place)
            except PermissionError:
                continue
            return
        owner = user_name(entry.stat().st_uid)
        raise BuildError(
            f"{entry} in the build cache is damaged or cannot be read, and it is {owner}'s, who alone can remove it; "
            "AUTOTUNE_CACHE names a folder of your own"
        )

    def _make_folder(self, folder: Path) -> None:
        """A folder of the cache, which those can write who can write the cache itself."""
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        shared = self.root.stat().st_mode & _WRITABLE
        for path in (*reversed(folder.relative_to(self.root).parents[:-1]), folder.relative_to(self.root)):
            place = self.root / path
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o755)
                if shared:
                    place.chmod(stat.S_IMODE(self.root.stat().st_mode))

    @contextlib.contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        path = self.root / LOCKS / key
        with self._writing():
            self._make_folder(path.parent)
            file = open_lock(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            # Who waits for the removed file gets it and finds the entry; who makes a new one finds the entry too.
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(file)

    @contextlib.contextmanager
    def _workspace(self, key: str) -> Iterator[Path]:
        with self._writing():
            parent = self.root / WORKSPACES
            self._make_folder(parent)
            workspace = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=parent))
            try:
                yield workspace
            finally:
                shutil.rmtree(workspace, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BuildError(f"cannot write the build cache {self.root}: {error}; set AUTOTUNE_CACHE") from error


_KNOWN: dict[Path, SealedFolders] = {}


def sealed_folders(root: Path) -> SealedFolders:
    """The one object of this process for a cache's root."""
    return _KNOWN.setdefault(root, SealedFolders(root))


def file_hash(path: Path) -> str:
    """32 hex digits of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _seal(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def _name(kind: str, key: str) -> str:
    return f"{kind}/{key}"
