"""Where the files that are not Python live: `templates/` and `db/`."""

from functools import cache
from pathlib import Path

from autotune.core.errors import AutotuneError

_PACKAGE = Path(__file__).resolve().parents[1]  # the folder `autotune`


@cache
def resource_root(name: str) -> Path:
    """Folder `templates` or `db`: in a wheel inside the package, in a checkout at the repository's root.

    Raises:
        AutotuneError: the installation is incomplete.
    """
    for root in (_PACKAGE / "_resources" / name, _PACKAGE.parent / name):
        if root.is_dir():
            return root
    raise AutotuneError(f"the folder {name!r} that belongs to autotune is missing; reinstall the package")


def in_checkout() -> bool:
    """Whether `templates/` and `db/` are those of a repository, which may be changed, not of an installed package."""
    return not resource_root("db").is_relative_to(_PACKAGE)
