"""Where things are kept, and the `AUTOTUNE_*` variables that change it. Read at every call, never frozen at import."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from autotune.core.errors import UsageError

DEFAULT_TARGET = "h200"
"""The GPU whose times are estimated, or looked up, where no GPU is present and none is named."""

DEFAULT_CACHE_LIMIT = 20 * 1024**3
"""Bytes that the build cache may take, where nothing else is said: thousands of builds."""

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([kmgt])?(?:i?b)?")


def _variable(name: str) -> str | None:
    value = os.environ.get(name, "").strip()
    return value or None


def data_folder() -> Path:
    """The user's data folder of this program; not made by this call.

    Raises:
        UsageError: this user has no home.
    """
    import platformdirs

    return _users_own(platformdirs.user_data_dir, "AUTOTUNE_DB to a file")


def cache_folder() -> Path:
    """Where builds are cached: `AUTOTUNE_CACHE`, else the user's cache folder; not made by this call.

    Raises:
        UsageError: this user has no home, or `~` names nobody's.
    """
    given = _variable("AUTOTUNE_CACHE")
    if given is not None:
        try:
            return Path(given).expanduser().absolute()
        except RuntimeError as error:
            raise UsageError(f"AUTOTUNE_CACHE={given!r}: {error}") from error
    import platformdirs

    return _users_own(platformdirs.user_cache_dir, "AUTOTUNE_CACHE to a folder")


def _users_own(folder_of: Callable[..., str], instead: str) -> Path:
    """A folder in the user's home, where there is one: a user without an account may have none, or a name for one."""
    try:
        folder = Path(folder_of("autotune", appauthor=False))
    except (RuntimeError, KeyError, OSError):
        folder = Path()
    if not folder.is_absolute():
        raise UsageError(
            f"user {os.getuid()} has no home folder: HOME is {os.environ.get('HOME', '')!r}, and there is no account; "
            f"set HOME to a folder, or {instead}"
        )
    return folder


def cache_limit() -> int | None:
    """Bytes that the build cache may take: `AUTOTUNE_CACHE_LIMIT`, else 20 GiB; None without a limit.

    Raises:
        UsageError: it is no size.
    """
    given = _variable("AUTOTUNE_CACHE_LIMIT")
    return DEFAULT_CACHE_LIMIT if given is None else read_size(given, "AUTOTUNE_CACHE_LIMIT")


def read_size(text: str, where: str) -> int | None:
    """`500M`, `20G`, `1048576`: bytes, in units of 1024; None for `none`.

    Raises:
        UsageError: it is no size; `where` it was given.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is not None:
        return int(float(found[1]) * 1024 ** ("kmgt".find(found[2]) + 1 if found[2] else 0))
    if text.strip().lower() == "none":
        return None
    raise UsageError(f"{where}={text!r} is no size; write 500M or 20G, or none for no limit")


def named_database() -> str | None:
    """Path or SQLAlchemy URL of the database that `AUTOTUNE_DB` names, if it does."""
    return _variable("AUTOTUNE_DB")


def database() -> str:
    """Path or SQLAlchemy URL of the database: `AUTOTUNE_DB`, else `autotune.db` in the data folder."""
    return named_database() or str(data_folder() / "autotune.db")


def on_miss() -> str | None:
    """What a call does where nothing is known of the very problem: `AUTOTUNE_ON_MISS`, if set."""
    return _variable("AUTOTUNE_ON_MISS")


def emulator_level() -> str:
    """How far g++ optimises what the emulator runs: `AUTOTUNE_EMULATOR_LEVEL` (0 to 3, or g), else 2.

    At 1 a build takes half the time of 2, and what it makes half as long again. At g it takes a quarter less than at 1,
    and what it makes a quarter longer: for many kernels that run for milliseconds.

    Raises:
        UsageError: it is no level.
    """
    given = _variable("AUTOTUNE_EMULATOR_LEVEL") or "2"
    if given not in ("0", "1", "2", "3", "g"):
        raise UsageError(f"AUTOTUNE_EMULATOR_LEVEL={given!r} is no level of optimisation; write 0, 1, 2, 3 or g")
    return given


def target() -> str:
    """Short name of the GPU that estimates are for: `AUTOTUNE_TARGET`, else `h200`."""
    return _variable("AUTOTUNE_TARGET") or DEFAULT_TARGET


def device() -> str | None:
    """Device asked for with `AUTOTUNE_DEVICE` (`cuda`, `cpu`, or the name of a GPU), if any."""
    return _variable("AUTOTUNE_DEVICE")
