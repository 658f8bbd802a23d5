"""Finding a database: its place checked, its folder made."""

import os
from pathlib import Path

from sqlalchemy import Engine

from autotune.core.database_files import check_file
from autotune.core.errors import StoreError
from autotune.store.connections import make_engine
from autotune.store.location import database_url, sqlite_path
from autotune.store.patience import PATIENCE, Patience


def open_engine(url: str | Path | None = None, *, create: bool = True, patience: Patience = PATIENCE) -> Engine:
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
    read_only = path is not None and not create and not _can_be_written(path)
    return make_engine(location, read_only=read_only, patience=patience)


def _can_be_written(path: Path) -> bool:
    """Whether SQLite can write into the file and make its own files beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {folder} for the database: {error.strerror}") from error
