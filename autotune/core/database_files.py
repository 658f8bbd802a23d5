"""Database files, judged before SQLite touches them. Light: needs no SQLAlchemy."""

import os
import re
from pathlib import Path

from autotune.core.errors import StoreError, UsageError
from autotune.core.passwords import resembles_url

SQLITE_MAGIC = b"SQLite format 3\0"
"""How every SQLite file begins."""


def as_text(database: object) -> str:
    """A database as a caller names it: a path, or text.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(database, str | os.PathLike):
        return str(database)
    raise UsageError(f"db={database!r} is neither the path of a database nor its URL")


def plain_path(text: str) -> Path | None:
    """The absolute path where `text` is one; None where it is a URL.

    Raises:
        UsageError: it is neither, or a URL with a typing error, which would make a file that is named like a password.
    """
    if "://" in text:
        return None
    if not text.strip() or "\0" in text:
        raise UsageError(f"the database {text!r} is neither a path nor a URL")
    if resembles_url(text):
        raise UsageError(
            f"the database {re.split('[:/]', text)[0]}… looks like a URL but has no ://; "
            "write e.g. postgresql+psycopg://user@host/name, or ./ before the name of a file"
        )
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~ of nobody
        raise UsageError(f"the database {text!r}: {error}") from error


def check_file(path: Path) -> bool:
    """Whether a database file is there (an empty file counts as none, it is what a new one looks like).

    Raises:
        StoreError: it is a folder, or holds something else than SQLite.
    """
    try:
        if path.is_dir():
            raise StoreError(f"the database {path} is a folder; name a file in it, such as {path / 'autotune.db'}")
        with path.open("rb") as file:
            head = file.read(len(SQLITE_MAGIC))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"cannot read the database {path}: {error.strerror}") from error
    if head and head != SQLITE_MAGIC:
        raise StoreError(f"{path} is not a SQLite database; it was left untouched, name another file with --db")
    return bool(head)
