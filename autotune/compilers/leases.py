"""Which entries of a build cache are in use, by whichever process of the machine.

Each process has one file of leases, locked as long as it lives: the kernel drops the lock when it dies. A lease is
written before an entry is looked for, under a lock that whoever removes entries holds while it reads the leases: what
has been found stays until it is given back.
"""

import atexit
import contextlib
import fcntl
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

FOLDER = "users"
_GATE = ".gate"


class Leases:
    """Those of this process (and of what it forks) in one cache. Who cannot write there has none."""

    def __init__(self, root: Path, make_folder: Callable[[Path], None]) -> None:
        self._root, self._folder, self._make_folder = root, root / FOLDER, make_folder
        self._lock = threading.Lock()
        self._file: int | None = None
        self._gate: int | None = None

    def take(self, name: str) -> None:
        """Say that an entry, there or not, is in use from now on."""
        self._write(f"+{name}\n")

    def give_back(self, name: str) -> None:
        """Say that it is in use once less."""
        self._write(f"-{name}\n")

    def _write(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            for attempt in range(2):  # the folder may have been deleted since
                if self._file is None or self._gate is None or os.fstat(self._file).st_nlink == 0:
                    self._open()
                assert self._file is not None
                assert self._gate is not None
                fcntl.flock(self._gate, fcntl.LOCK_SH)
                try:
                    os.write(self._file, line.encode())
                finally:
                    fcntl.flock(self._gate, fcntl.LOCK_UN)
                if attempt or os.fstat(self._file).st_nlink:
                    break

    def _open(self) -> None:
        for opened in (self._file, self._gate):
            if opened is not None:
                os.close(opened)
        self._file = self._gate = None
        if self._root.is_dir():
            self._make_folder(self._folder)
        self._gate = open_lock(self._folder / _GATE)
        path = self._folder / uuid.uuid4().hex
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        os.fchmod(self._file, 0o644)  # other users look into it
        fcntl.flock(self._file, fcntl.LOCK_EX)
        atexit.register(_remove, path, os.getpid())


@contextlib.contextmanager
def held_back(root: Path) -> Iterator[Counter[str] | None]:
    """How often each entry is in use; within the block no process takes another. Files of dead processes are removed.

    None where that cannot be told, or another process is at it.
    """
    folder = root / FOLDER
    try:
        if root.is_dir():
            folder.mkdir(mode=0o755, exist_ok=True)  # a cache of an older version has none
        gate = open_lock(folder / _GATE)
    except OSError:
        yield None
        return
    try:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield _in_use(folder)
    finally:
        os.close(gate)


def _in_use(folder: Path) -> Counter[str] | None:
    used: Counter[str] = Counter()
    for path in folder.iterdir():
        if path.name == _GATE:
            continue
        try:
            with path.open("r+b" if os.access(path, os.W_OK) else "rb") as file:
                if _is_held(file.fileno()):
                    for line in file.read().decode().splitlines():
                        used[line[1:]] += 1 if line[0] == "+" else -1
                    continue
            path.unlink()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, IndexError):
            return None  # another user's, that cannot be read
    return used


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def open_lock(path: Path) -> int:
    """A file to be locked, made if it is not there; another user's will do, which can perhaps be read only.

    Raises:
        OSError: it can neither be made nor read.
    """
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):  # it is another user's
        os.fchmod(opened, 0o644)
    return opened


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # else a fork ends, and its parent goes on
        path.unlink(missing_ok=True)
