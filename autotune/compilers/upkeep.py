"""Keeping a build cache within its limit: what was used least recently goes first, what is in use stays.

What killed processes left is swept on the way. Each user removes what is theirs.
"""

import contextlib
import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from autotune.compilers.leases import held_back
from autotune.compilers.sealed import APART, DAMAGED, LOCKS, RECORD, WORKSPACES
from autotune.core.errors import BuildError
from autotune.core.owners import others_in

_LITTER_S = 86400.0
"""How old a workspace or a lock must be before nobody can be at it any more."""

_LEFT = 0.9
"""Part of the limit that is kept when it is passed: not every build shall have to make room."""

_SHARE = 0.05

_COUNTED: dict[Path, tuple[int, int]] = {}  # bytes that were counted, and bytes made since by this process
_COUNTING = threading.Lock()


@dataclass(frozen=True)
class CacheEntry:
    """One entry: bytes on the disk, when it was last used (seconds since the epoch), whether somebody uses it."""

    kind: str
    path: Path
    nbytes: int
    used_at: float
    in_use: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.path.name}"


@dataclass
class Cleaned:
    """What was removed: entries, things that killed processes had left, bytes; and the entries that were in use."""

    removed: int = 0
    litter: int = 0
    nbytes: int = 0
    kept: list[CacheEntry] = field(default_factory=list)


def entries(root: Path) -> Iterator[CacheEntry]:
    """Every entry of a cache, in no order; nothing where there is no cache.

    Raises:
        BuildError: it cannot be read.
    """
    with _readable(root):
        for kind in _folders(root):
            if kind.name not in APART:
                for part in _folders(kind):
                    for path in _folders(part):
                        if len(part.name) == 2 and path.name.startswith(part.name) and DAMAGED not in path.name:
                            yield CacheEntry(kind.name, path, _size(path), _used_at(path))


def litter(root: Path) -> Iterator[Path]:
    """What nobody needs: of killed processes, after a day; entries set aside; what older versions kept elsewhere."""
    long_ago = time.time() - _LITTER_S
    with _readable(root):
        for place in (root / WORKSPACES, root / LOCKS):
            for path in _children(place):
                if _changed_at(path) < long_ago and not _is_locked(path):
                    yield path
        for kind in _folders(root):
            if kind.name in APART:
                continue
            for part in _children(kind):
                if len(part.name) != 2:
                    if _changed_at(part) < long_ago:
                        yield part
                    continue
                yield from (path for path in _folders(part) if DAMAGED in path.name)


def in_use(root: Path) -> set[str]:
    """Names of the entries that some process uses now; all, where that cannot be told."""
    with held_back(root) as used:
        return {entry.name for entry in entries(root)} if used is None else {name for name in used if used[name] > 0}


def clean(root: Path, limit: int) -> Cleaned:
    """Sweep litter, and while entries take more than `limit` bytes remove the one used least recently that nobody uses.

    Nothing but litter is removed while another process is at it, or where it cannot be told what is in use.

    Raises:
        BuildError: the cache cannot be read.
    """
    done = sweep(root)
    aside = root / WORKSPACES / f"clean-{uuid.uuid4().hex}"
    found = sorted(entries(root), key=lambda entry: entry.used_at)
    left = sum(entry.nbytes for entry in found)
    with held_back(root) as used:
        for entry in found:
            if left <= limit:
                break
            if used is None or used[entry.name] > 0:
                done.kept.append(entry)
            elif _set_aside(entry.path, aside):
                left, done.removed, done.nbytes = left - entry.nbytes, done.removed + 1, done.nbytes + entry.nbytes
    shutil.rmtree(aside, ignore_errors=True)
    return done


def sweep(root: Path) -> Cleaned:
    """Remove litter.

    Raises:
        BuildError: the cache cannot be read.
    """
    done = Cleaned()
    for path in list(litter(root)):
        size = _size(path)
        if _remove(path):
            done.litter, done.nbytes = done.litter + 1, done.nbytes + size
    return done


def make_room(root: Path, made: Path, limit: int | None) -> None:
    """After an entry was made: `clean` if the cache is over its limit, as far as is known.

    The first time litter is swept and all entries are counted; they are again once this process has made a share of the
    limit: others make some, too.
    """
    with _COUNTING, contextlib.suppress(BuildError):
        if root not in _COUNTED:
            sweep(root)
        known, grown = _COUNTED.get(root, (2**63, 0))
        grown += _size(made)
        if limit is None:
            _COUNTED[root] = known, grown
        elif known + grown > limit or grown > limit * _SHARE:
            total = sum(entry.nbytes for entry in entries(root))
            if total > limit:
                clean(root, int(limit * _LEFT))
                total = sum(entry.nbytes for entry in entries(root))
            _COUNTED[root] = total, 0
        else:
            _COUNTED[root] = known, grown


def who_else(root: Path) -> str:
    """Who else can write the cache, and so run code as this user; empty where nobody can."""
    for path in (root, *_folders(root)):
        with contextlib.suppress(OSError):
            if found := others_in(path):
                return found
    return ""


def _set_aside(path: Path, aside: Path) -> bool:
    """Renamed first: whoever looks for it finds all of it or nothing."""
    try:
        aside.mkdir(parents=True, exist_ok=True)
        path.rename(aside / path.name)
    except OSError:
        return False  # another user's, or gone
    return True


def _remove(path: Path) -> bool:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        return True
    return False


def _is_locked(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _used_at(path: Path) -> float:
    return _changed_at(path / RECORD) or _changed_at(path)


def _changed_at(path: Path) -> float:
    try:
        return path.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    """Bytes that a file or folder takes on the disk."""
    total = 0
    with contextlib.suppress(OSError):
        total = 512 * path.stat(follow_symlinks=False).st_blocks
        if path.is_dir() and not path.is_symlink():
            for place, _, names in os.walk(path):
                for name in names:
                    with contextlib.suppress(OSError):
                        total += 512 * os.lstat(f"{place}/{name}").st_blocks
    return total


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _folders(folder: Path) -> list[Path]:
    return [path for path in _children(folder) if path.is_dir()]


@contextlib.contextmanager
def _readable(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuildError(f"cannot read the build cache {root}: {error}") from error
