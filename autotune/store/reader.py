"""Quick reading for look-ups: plain SQL, no ORM, and on SQLite no SQLAlchemy at all.

A reader also tells cheaply whether anything may have changed since it last looked (`stamp`).
"""

import itertools
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from autotune.core.database_files import check_file, plain_path
from autotune.core.errors import StoreError
from autotune.store.schema_version import VERSION_TABLE, check_version

Row = Sequence[Any]

_NUMBERS = itertools.count(1)


class Reader(Protocol):
    """A database, opened to be looked into."""

    def stamp(self) -> object:
        """Equal to an earlier one only if nothing has been committed since, by whomever."""

    def rows(self, sql: str, values: Mapping[str, Any]) -> Sequence[Row]:
        """Answer a query with `:name` values; nothing, where there is no database yet.

        Raises:
            StoreError: the database cannot be read or has another schema version.
        """


def open_reader(location: str) -> Reader:
    """A reader for a path or SQLAlchemy URL.

    Raises:
        UsageError: malformed.
    """
    path = plain_path(location)
    if path is None:
        from autotune.store.location import database_url, sqlite_path

        url = database_url(location)
        path = sqlite_path(url)
        if path is None:
            return EngineReader(url)
    return SqliteReader(path)


class SqliteReader:
    """One read-only connection, kept open; follows the file when it appears, or is replaced by another.

    Files' times are too coarse to tell two quick commits apart, so SQLite is asked: `PRAGMA data_version`
    changes with every commit of another connection, and all commits come from others. Its numbers mean something
    to one connection only, so connections are numbered.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._number = 0
        self._file: tuple[int, ...] | None = None

    def stamp(self) -> object:
        """The connection's number with SQLite's count of changes; None where there is no file."""
        with self._lock:
            connection = self._current()
            if connection is None:
                return None
            try:
                return self._number, connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise self._refusal(error) from error

    def rows(self, sql: str, values: Mapping[str, Any]) -> Sequence[Row]:
        with self._lock:
            connection = self._current()
            if connection is None:
                return ()
            try:
                return connection.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise self._refusal(error) from error

    def _current(self) -> sqlite3.Connection | None:
        """The connection to the file that is there now."""
        try:
            status = os.stat(self._name)  # noqa: PTH116 - Path.stat takes as long as the whole rest
        except OSError:
            status = None
        # A copy over the file keeps its number, and perhaps SQLite's count; a checkpoint costs a new connection.
        file = None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if file == self._file and (self._connection is not None or file is None):
            return self._connection
        if self._connection is not None:
            self._connection.close()
        self._connection, self._file = None, None
        if check_file(self._path):
            self._connection, self._file, self._number = self._open(), file, next(_NUMBERS)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        quoted = self._path.as_uri()
        try:
            connection = _connect(f"{quoted}?mode=ro")
            version = _version(connection)
        except sqlite3.OperationalError as error:
            if os.access(self._path.parent, os.W_OK):
                raise self._refusal(error) from error
            # A database on a read-only disk: WAL needs a file beside it unless it is promised never to change.
            connection = _connect(f"{quoted}?immutable=1")
            version = _version(connection)
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) from error
        check_version(version, self._name)
        return connection

    def _refusal(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"cannot read the database {self._path}: {error}; name another with --db")


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None, check_same_thread=False)


def _version(connection: sqlite3.Connection) -> str | None:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).fetchone()
    if found is None:
        return None
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return None if row is None else str(row[0])


class EngineReader:
    """A database server. It is asked every time: nothing tells cheaply that it has not changed."""

    def __init__(self, url: Any) -> None:
        from autotune.store.connections import make_engine
        from autotune.store.patience import LOOKING_UP

        self._engine = make_engine(url, patience=LOOKING_UP)
        self._checked = False

    def stamp(self) -> object:
        """A new object: never equal to an earlier one."""
        return object()

    def rows(self, sql: str, values: Mapping[str, Any]) -> Sequence[Row]:
        from autotune.store.patience import persistent

        return persistent(self._engine, lambda: self._rows(sql, values), None if self._checked else 0.0)

    def _rows(self, sql: str, values: Mapping[str, Any]) -> Sequence[Row]:
        from sqlalchemy import text

        from autotune.store.connections import reading
        from autotune.store.location import shown
        from autotune.store.schema import current_version

        with reading(self._engine) as connection:
            if not self._checked:
                version = current_version(connection)
                if version is None:
                    return ()
                check_version(version, shown(self._engine.url))
                self._checked = True
            return [tuple(row) for row in connection.execute(text(sql), values)]
