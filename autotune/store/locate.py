"""Which database is meant: a path or a SQLAlchemy URL, checked before anything is opened."""

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from autotune import settings
from autotune.errors import StoreError, UsageError

_SQLITE_MAGIC = b"SQLite format 3\0"


def database_url(given: str | Path | None = None) -> URL:
    """The URL of a database given as path or URL; None means `AUTOTUNE_DB`, else the user's data folder.

    Raises:
        UsageError: malformed, of a database that is not supported, or in memory only.
        StoreError: the database's Python driver is not installed.
    """
    text = str(given if given is not None else settings.database())
    if "://" not in text:
        if not text.strip() or "\0" in text:
            raise UsageError(f"the database {text!r} is neither a path nor a URL")
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    url = _parse(text)
    backend = url.get_backend_name()
    if backend not in {"sqlite", "postgresql"}:
        raise UsageError(f"the database URL {_shown(url)} names {backend!r}; use sqlite or postgresql")
    _driver(url)
    return _sqlite(url) if backend == "sqlite" else url


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL made by `database_url`; None for a server."""
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def shown(url: URL) -> str:
    """How messages name a database: the path of a file, the URL of a server without its password."""
    path = sqlite_path(url)
    return str(path) if path is not None else _shown(url)


def check_file(path: Path) -> bool:
    """Whether a database file is there (an empty file counts as none, it is what a new one looks like).

    Raises:
        StoreError: it is a folder, or holds something else than SQLite.
    """
    try:
        if path.is_dir():
            raise StoreError(f"the database {path} is a folder; name a file in it, such as {path / 'autotune.db'}")
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_MAGIC))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"cannot read the database {path}: {error.strerror}") from error
    if head and head != _SQLITE_MAGIC:
        raise StoreError(f"{path} is not a SQLite database; it was left untouched, name another file with --db")
    return bool(head)


def _parse(text: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError) as error:
        hint = "write e.g. sqlite:///file.db or postgresql+psycopg://user@host/name"
        raise UsageError(f"malformed database URL {text!r}; {hint}") from error


def _driver(url: URL) -> None:
    try:
        url.get_dialect().import_dbapi()
    except NoSuchModuleError as error:
        raise UsageError(f"the database URL {_shown(url)} names an unknown driver {url.drivername!r}") from error
    except ImportError as error:
        extra = "pip install 'autotune[postgres]'" if url.get_backend_name() == "postgresql" else "install it"
        raise StoreError(f"the driver {error.name!r} of the database URL {_shown(url)} is missing: {extra}") from error


def _sqlite(url: URL) -> URL:
    if url.database in {None, "", ":memory:"} or str(url.database).startswith("file:"):
        raise UsageError(f"the database URL {_shown(url)} names no file; results in memory would be lost")
    if url.get_driver_name() != "pysqlite" or url.host or url.query:
        raise UsageError(f"write a SQLite database as a path or as sqlite:///path, not as {_shown(url)}")
    return URL.create("sqlite", database=str(Path(str(url.database)).expanduser().absolute()))


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)
