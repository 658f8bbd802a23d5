"""Which database is meant: a path or a SQLAlchemy URL, checked before anything is opened."""

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from autotune.core import settings
from autotune.core.database_files import as_text, plain_path
from autotune.core.errors import StoreError, UsageError
from autotune.core.extras import install
from autotune.core.passwords import hidden


def database_url(given: str | Path | None = None) -> URL:
    """The URL of a database given as path or URL; None means `AUTOTUNE_DB`, else the user's data folder.

    Raises:
        UsageError: malformed, of a database that is not supported, or in memory only.
        StoreError: the database's Python driver is not installed.
    """
    text = settings.database() if given is None else as_text(given)
    path = plain_path(text)
    if path is not None:
        return URL.create("sqlite", database=str(path))
    url = _parse(text)
    backend = url.get_backend_name()
    if backend not in {"sqlite", "postgresql"}:
        raise UsageError(f"the database URL {_shown(url)} names {backend!r}; use sqlite or postgresql")
    if backend == "sqlite":
        return _sqlite(url)
    _driver(url)
    return url


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL made by `database_url`; None for a server."""
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def shown(url: URL) -> str:
    """How messages name a database: the path of a file, the URL of a server without its password."""
    path = sqlite_path(url)
    return str(path) if path is not None else _shown(url)


def _parse(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError) as error:
        hint = "write e.g. sqlite:///file.db or postgresql+psycopg://user@host/name"
        raise UsageError(f"malformed database URL {hidden(text)!r}; {hint}") from error


def _driver(url: URL) -> None:
    try:
        url.get_dialect().import_dbapi()
    except NoSuchModuleError as error:
        raise UsageError(f"the database URL {_shown(url)} names an unknown driver {url.drivername!r}") from error
    except ImportError as error:
        hint = f"{install('postgres')}; its URLs begin with postgresql+psycopg://"
        raise StoreError(
            f"the driver {_missing(error, url)!r} of the database URL {_shown(url)} is missing: {hint}"
        ) from error


def _missing(error: ImportError, url: URL) -> str:
    """What is not there; a driver that lacks a library of its own names nothing."""
    return error.name or url.get_driver_name()


def _sqlite(url: URL) -> URL:
    if url.database in {None, "", ":memory:"} or str(url.database).startswith("file:"):
        raise UsageError(f"the database URL {_shown(url)} names no file; results in memory would be lost")
    if url.get_driver_name() != "pysqlite" or url.host or url.query:
        raise UsageError(f"write a SQLite database as a path or as sqlite:///path, not as {_shown(url)}")
    return URL.create("sqlite", database=str(Path(str(url.database)).expanduser().absolute()))


def _shown(url: URL) -> str:
    return hidden(url.render_as_string(hide_password=True))
