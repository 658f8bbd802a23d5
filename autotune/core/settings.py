"""Where things are kept, and the `AUTOTUNE_*` variables that change it. Read at every call, never frozen at import."""

import os
from pathlib import Path

DEFAULT_TARGET = "h200"
"""The GPU whose times are estimated, or looked up, where no GPU is present and none is named."""


def _variable(name: str) -> str | None:
    value = os.environ.get(name, "").strip()
    return value or None


def data_folder() -> Path:
    """The user's data folder of this program; not made by this call."""
    import platformdirs

    return Path(platformdirs.user_data_dir("autotune", appauthor=False))


def cache_folder() -> Path:
    """Where builds are cached: `AUTOTUNE_CACHE`, else the user's cache folder; not made by this call."""
    given = _variable("AUTOTUNE_CACHE")
    if given is not None:
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("autotune", appauthor=False))


def database() -> str:
    """Path or SQLAlchemy URL of the database: `AUTOTUNE_DB`, else `autotune.db` in the data folder."""
    return _variable("AUTOTUNE_DB") or str(data_folder() / "autotune.db")


def target() -> str:
    """Short name of the GPU that estimates are for: `AUTOTUNE_TARGET`, else `h200`."""
    return _variable("AUTOTUNE_TARGET") or DEFAULT_TARGET


def device() -> str | None:
    """Device asked for with `AUTOTUNE_DEVICE` (`cuda`, `cpu`, or the name of a GPU), if any."""
    return _variable("AUTOTUNE_DEVICE")
