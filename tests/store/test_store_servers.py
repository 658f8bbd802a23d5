"""Connections to a real PostgreSQL: their limits, and what is done again when one is lost."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from autotune.core.errors import DatabaseAway, StoreError
from autotune.store import Store, open_store
from autotune.store.connections import make_engine, reading, writing
from autotune.store.location import database_url
from autotune.store.opening import open_engine
from autotune.store.patience import PATIENCE, Patience, persistent
from autotune.store.reader import EngineReader
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok
from tests.store.store_servers import Server


def ask(engine: Engine, sql: str) -> Any:
    with reading(engine) as connection:
        return connection.execute(text(sql)).scalar()


@pytest.fixture
def store(postgres: str) -> Iterator[Store]:
    with open_store(postgres) as opened:
        yield opened


def cut_all(server: Server) -> None:
    """As a restart does, or a firewall."""
    admin = create_engine(server.url)
    with admin.begin() as connection:
        clients = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        connection.execute(text(f"SELECT pg_terminate_backend(pid) {clients}"))
    admin.dispose()


def test_limits_are_in_order() -> None:
    """The frozen one is undone before the others give up, and a server's own limits come before ours."""
    assert PATIENCE.idle_s < PATIENCE.lock_s < PATIENCE.statement_s < PATIENCE.answer_s < PATIENCE.outage_s


def test_every_connection_has_limits(postgres: str) -> None:
    engine = open_engine(postgres)
    assert ask(engine, "SHOW lock_timeout") == "30s"
    assert ask(engine, "SHOW statement_timeout") == "45s"
    assert ask(engine, "SHOW idle_in_transaction_session_timeout") == "15s"
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        told = driver.info.get_parameters()
        assert {name: told[name] for name in ("connect_timeout", "keepalives_idle", "tcp_user_timeout")} == {
            "connect_timeout": "10", "keepalives_idle": "10", "tcp_user_timeout": "60000",
        }  # fmt: skip
    own = open_engine(f"{postgres}&connect_timeout=3")
    with own.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver.info.get_parameters()["connect_timeout"] == "3"


def test_a_lost_connection_is_replaced(store: Store, server: Server) -> None:
    store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0))
    for number in range(1, 4):
        cut_all(server)
        store.record(H200, FORWARD, candidate(number), SOURCE, ok(1.0))
        cut_all(server)
        assert len(list(store.measurements())) == number + 1


def test_one_lost_in_the_midst_of_a_transaction_is_begun_anew(store: Store, server: Server) -> None:
    cuts = iter([True, True, False])

    def write(session: Any) -> int:
        session.execute(text("INSERT INTO problem (key, op, fields) VALUES ('k', 'op', '{}')"))
        if next(cuts):
            cut_all(server)
        return int(session.execute(text("SELECT count(*) FROM problem")).scalar())

    assert store.transact(write) == 1


def test_what_the_server_refuses_is_not_asked_again(store: Store) -> None:
    asked = []

    def write(session: Any) -> None:
        asked.append(session.execute(text("SELECT 1/0")))

    with pytest.raises(StoreError, match="division by zero") as caught:
        store.transact(write)
    assert not isinstance(caught.value, DatabaseAway)
    assert asked == []


def test_who_holds_the_lock_for_too_long_is_said(postgres: str) -> None:
    open_store(postgres).close()
    impatient = open_engine(postgres, patience=Patience(lock_s=0.2, outage_s=0.5))
    with (
        writing(open_engine(postgres)),
        pytest.raises(DatabaseAway, match=r"lock timeout \(.*\); it has been so for 0\.5 s"),
    ):
        persistent(impatient, lambda: write_nothing(impatient))
    write_nothing(impatient)


def write_nothing(engine: Engine) -> None:
    with writing(engine):
        pass


def test_a_lock_that_comes_free_is_waited_for(postgres: str) -> None:
    open_store(postgres).close()
    patient, held, done = open_engine(postgres, patience=Patience(lock_s=0.2)), threading.Event(), threading.Event()

    def hold() -> None:
        with writing(open_engine(postgres)):
            held.set()
            done.wait(1.0)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    persistent(patient, lambda: write_nothing(patient))
    holder.join()


def test_a_statement_that_takes_too_long_is_said(postgres: str) -> None:
    engine = open_engine(postgres, patience=Patience(statement_s=0.1))
    with pytest.raises(StoreError, match="gave up a statement that took too long"):
        ask(engine, "SELECT pg_sleep(30)")


def test_a_transaction_without_an_answer_is_cut(postgres: str) -> None:
    engine = open_engine(postgres, patience=Patience(answer_s=0.3))
    began = time.monotonic()
    with pytest.raises(DatabaseAway, match="cannot be used now"):
        ask(engine, "SELECT pg_sleep(100)")
    assert time.monotonic() - began < 90  # before the server would have answered
    assert ask(engine, "SELECT 1") == 1


def test_a_look_up_does_not_wait_for_a_server_that_was_never_there(tmp_path: Any) -> None:
    pytest.importorskip("psycopg")
    reader = EngineReader(database_url(f"postgresql+psycopg://u@/x?host={tmp_path}"))
    with pytest.raises(DatabaseAway, match="No such file"):
        reader.rows("SELECT 1", {})


def test_a_look_up_survives_a_lost_connection(postgres: str, server: Server) -> None:
    open_store(postgres).close()
    reader = EngineReader(database_url(postgres))
    for _ in range(2):
        assert list(reader.rows("SELECT 1", {})) == [(1,)]
        cut_all(server)


def test_sqlite_is_never_away(tmp_path: Any) -> None:
    engine = make_engine(database_url(tmp_path / "none" / "a.db"))
    with pytest.raises(StoreError, match="cannot be opened") as caught, reading(engine):
        pass
    assert not isinstance(caught.value, DatabaseAway)
