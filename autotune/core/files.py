"""Writing a file that others may be reading: whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO

from autotune.core.database_files import SQLITE_MAGIC
from autotune.core.errors import AutotuneError


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """A text file that takes the place of `path` at the end of the block; an exception leaves `path` as it was.

    A link's target is replaced, not the link. Devices, pipes and what lies under `/dev` and `/proc` cannot be
    replaced, so they are written into.

    Raises:
        OSError: it cannot be written, or is a database.
    """
    if _is_stream(path):
        with path.open("w", encoding="utf-8") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    _spare_database(target)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".autotune.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yield file
        part.chmod(0o666 & ~_mask())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def written(path: Path) -> Iterator[IO[str]]:
    """`replacing` for a file that a user has asked for. The request is sound, so that it fails is no usage error.

    Raises:
        AutotuneError: it cannot be written, or is a database.
    """
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path | str, error: OSError) -> AutotuneError:
    """What to raise where a user's file cannot be written: one line, and the exit code of a failure."""
    return AutotuneError(f"cannot write {path}: {error.strerror or error}")


def _is_stream(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not S_ISREG(mode) or path.absolute().parts[1:2] in {("dev",), ("proc",)}


def _spare_database(path: Path) -> None:
    with suppress(FileNotFoundError), path.open("rb") as file:
        if file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC:
            raise FileExistsError(errno.EEXIST, "it is a database, which was left untouched")


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
