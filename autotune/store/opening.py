"""Finding a database: its place checked, its folder made."""

from pathlib import Path

from sqlalchemy import Engine

from autotune.errors import StoreError
from autotune.store.engine import make_engine
from autotune.store.files import check_file
from autotune.store.locate import database_url, sqlite_path


def open_engine(url: str | Path | None = None, *, create: bool = True) -> Engine:
    """The engine behind a store, its file checked but not its schema (for `autotune db upgrade`).

    Raises:
        UsageError: a malformed or unsupported URL.
        StoreError: missing without `create`, a folder, or not a SQLite file.
    """
    location = database_url(url)
    path = sqlite_path(location)
    if path is not None and not check_file(path):
        if not create:
            raise StoreError(f"there is no database {path}; `autotune search` makes one, --db names another")
        _make_folder(path.parent)
    return make_engine(location)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {folder} for the database: {error.strerror}") from error
