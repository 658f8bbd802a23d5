"""Connections: what every one of them is set to, one writer at a time, and errors in this package's words."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, DisconnectionError, OperationalError, SQLAlchemyError

from autotune.core.errors import DatabaseAway, StoreError
from autotune.core.passwords import hidden
from autotune.store.location import shown
from autotune.store.patience import OPTION, PATIENCE, Patience, answered

BUSY_SECONDS = 60
"""How long a writer waits for the others before it gives up."""

_WRITER_LOCK = 0x6175746F74756E65  # PostgreSQL advisory lock: "autotune" in ASCII
_WRITES = {"autotune_writes": True}

# SQLSTATE: connection lost; shut down, crashed, starting; too many connections; killed while idle in a transaction;
# serialisation and deadlock; lock not available.
_AWAY = ("08", "57P01", "57P02", "57P03", "57P05", "53300", "25P03", "40001", "40P01", "55P03")


def make_engine(url: URL, *, read_only: bool = False, patience: Patience = PATIENCE) -> Engine:
    """An engine for a URL from `database_url`. Nothing is opened yet.

    `read_only`: of a SQLite file that cannot be written, or lies where nothing can be. `patience`: with a server.
    """
    if url.get_backend_name() != "sqlite":
        engine = _server_engine(url, patience)
    elif read_only:
        engine = create_engine(url, creator=lambda: _open_read_only(Path(str(url.database))))
        event.listen(engine, "begin", _begin)
    else:
        engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _prepare)
        event.listen(engine, "begin", _begin)
        _hold_to_one_file(engine)
    event.listen(engine, "connect", _note_process)
    event.listen(engine, "checkout", _own_process_only)
    return engine


def _server_engine(url: URL, patience: Patience) -> Engine:
    """Connections are not asked whether they still live: `persistent` gets another one where they do not."""
    known = patience.connect_arguments() if url.get_driver_name() in {"psycopg", "psycopg2"} else {}
    arguments = {name: value for name, value in known.items() if name not in url.query}
    engine = create_engine(url, connect_args=arguments, execution_options={OPTION: patience})
    settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in patience.settings().items())

    def limit(connection: Any, record: Any) -> None:  # noqa: ARG001
        cursor = connection.cursor()
        cursor.execute(f"SELECT {settings}")
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", limit)
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that is the only writing one; committed at the end of the block, undone by an exception.

    One writer at a time makes "look, then insert" safe on every database, and makes ids ascend in the order of
    commits, so that following by id misses nothing. Writes are short and a trial takes a second: nothing waits.

    Raises:
        StoreError: the database cannot be written, or stayed locked for `BUSY_SECONDS`.
        DatabaseAway: its server is gone, does not answer, or stayed locked.
    """
    with _connected(engine, writes=True) as connection, answered(connection), connection.begin():
        _lock(connection)
        yield connection


@contextmanager
def migrating(engine: Engine) -> Iterator[Connection]:
    """Like `writing`, for changes of the schema: that rows refer to rows is checked at the end, not on the way.

    SQLite changes most of a table by copying it and dropping the old one only, which rows that refer to it forbid.

    Raises:
        StoreError: as `writing`, or a row refers to one that is gone; nothing has changed then.
    """
    if engine.dialect.name != "sqlite":
        with _connected(engine, writes=True) as connection, connection.begin():
            connection.execute(text("SET LOCAL statement_timeout = 0"))  # tables may be large
            _lock(connection)
            yield connection
        return
    with _connected(engine, writes=True) as connection:
        connection.detach()  # no other transaction gets this connection: it does not watch references
        connection.connection.cursor().execute("PRAGMA foreign_keys=OFF")  # heeded outside transactions only
        with connection.begin():
            yield connection
            lost = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
            if lost:
                tables = ", ".join(sorted({str(row[0]) for row in lost}))
                raise StoreError(f"{len(lost)} rows of {tables} would refer to nothing (database {shown(engine.url)})")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: it sees one state of the database and never waits for writers.

    Raises:
        StoreError: the database cannot be read.
        DatabaseAway: its server is gone or does not answer.
    """
    with _connected(engine) as connection, answered(connection), connection.begin():
        yield connection


@contextmanager
def _connected(engine: Engine, *, writes: bool = False) -> Iterator[Connection]:
    options = _WRITES if writes else {}
    with translated(engine.url), engine.connect().execution_options(**options) as connection:
        yield connection


def _lock(connection: Connection) -> None:
    """Wait until no other transaction writes; SQLite sees to that itself."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _WRITER_LOCK})


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn the database's own exceptions into `StoreError`: one line that names the database and what to do."""
    try:
        yield
    except DBAPIError as error:
        if url.get_backend_name() == "postgresql" and _away(error):
            said = " ".join(hidden(str(error.orig)).split())
            raise DatabaseAway(f"the database server cannot be used now: {said} (database {shown(url)})") from error
        raise StoreError(f"{_explain(hidden(str(error.orig)))} (database {shown(url)})") from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise StoreError(f"{_explain(hidden(str(error)))} (database {shown(url)})") from error


def _away(error: DBAPIError) -> bool:
    """Whether another try may do: the connection broke or could not be made, or others were in the way."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None) or ""
    without = isinstance(error, OperationalError) and not state  # libpq's own: no answer, no connection
    return error.connection_invalidated or without or state.startswith(_AWAY)


def _note_process(connection: Any, record: Any) -> None:  # noqa: ARG001
    record.info["pid"] = os.getpid()


def _own_process_only(connection: Any, record: Any, proxy: Any) -> None:  # noqa: ARG001
    """A forked process must not use its parent's connections: it is given new ones."""
    if record.info["pid"] != os.getpid():
        record.dbapi_connection = proxy.dbapi_connection = None
        raise DisconnectionError("a connection of the parent process")


def _hold_to_one_file(engine: Engine) -> None:
    """SQLite goes on writing into a file that has no name any more, and what it writes is lost: refuse that."""
    path, first = str(engine.url.database), None

    def note(*_: Any) -> None:
        nonlocal first
        first = first or _identity(path)

    def check(*_: Any) -> None:
        if first is not None and _identity(path) != first:
            raise StoreError(f"the database {path} was deleted or replaced while in use; run the command again")

    event.listen(engine, "connect", note)
    event.listen(engine, "checkout", check)
    event.listen(engine, "do_connect", check)  # which would make a new, empty file


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


_CAUSES = {
    "readonly": "the database or its folder is read-only; name another place with --db or AUTOTUNE_DB",
    "unable to open": "the database cannot be opened; check that its folder exists and can be written",
    "not a database": "the file is not a SQLite database; it was left untouched",
    "malformed": "the database file is damaged; restore a copy, or start another one with --db",
    "is locked": f"another process kept the database locked for {BUSY_SECONDS} s; end it and run the command again",
    "disk is full": "the disk is full; nothing was lost, free some space and run the command again",
    "no such column": "the database lacks a column; run `autotune db upgrade`",
    "statement timeout": "the database server gave up a statement that took too long; run the command again",
}


def _explain(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for words, cause in _CAUSES.items():
        if words in message:
            return cause
    return f"the database refused: {'; '.join(lines[:2])}"


def _open_read_only(path: Path) -> sqlite3.Connection:
    uri = path.as_uri()
    connection = _connect_read_only(f"{uri}?mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError:
        # WAL needs a file beside the database, unless SQLite is promised that nobody changes it.
        connection.close()
        connection = _connect_read_only(f"{uri}?immutable=1")
    return connection


def _connect_read_only(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _prepare(connection: Any, record: Any) -> None:  # noqa: ARG001
    connection.isolation_level = None  # transactions are begun by `_begin`, not by sqlite3's own guess
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA foreign_keys=ON")
        # With WAL a killed process loses nothing that was committed; after a power cut the last trials may be missing
        # and are measured again. Waiting for the disk at each commit would buy no more than that.
        cursor.execute("PRAGMA synchronous=NORMAL")
        if cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            _switch_to_wal(cursor)
    finally:
        cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    """WAL is a property of the file. Switching needs it alone and does not wait for that by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    # A writer takes its lock at once: a reader that turns writer half-way is refused when another wrote meanwhile.
    immediate = connection.get_execution_options().get("autotune_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
