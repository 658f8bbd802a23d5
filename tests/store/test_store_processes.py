"""Several real processes at one database: nothing is lost, nothing is done twice, a killed one leaves it usable."""

import multiprocessing
import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autotune.store import Owner, open_store
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok

SPAWN = multiprocessing.get_context("spawn")
_EACH = 20


def _write(path: str, first: int, barrier: Any) -> None:
    barrier.wait()
    with open_store(path) as store:
        for i in range(_EACH):
            store.record(H200, FORWARD, candidate(first + i), SOURCE, ok(1.0 + first + i))


def test_two_that_start_at_once_make_one_database_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    barrier = SPAWN.Barrier(3)
    workers = [SPAWN.Process(target=_write, args=(str(path), n * _EACH, barrier)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with open_store(path) as store:
        records = list(store.measurements(FORWARD, "h200"))
        winner = store.winner(FORWARD, "h200")
    assert sorted(record.candidate.config["BLOCK_M"] for record in records) == list(range(3 * _EACH))
    assert winner is not None
    assert winner.record.measurement.ms == 1.0


def _evaluate(path: str, barrier: Any, done: Any) -> None:
    """What a search does: claim, evaluate, record, all over the same candidates."""
    owner = Owner.here()
    with open_store(path) as store:
        barrier.wait()
        for i in range(20):
            if store.claim(H200, FORWARD, candidate(i), owner).granted:
                done.put((i, os.getpid()))
                store.record(H200, FORWARD, candidate(i), SOURCE, ok(1.0 + i))


def test_no_candidate_is_evaluated_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()
    barrier, done = SPAWN.Barrier(2), SPAWN.Queue()
    workers = [SPAWN.Process(target=_evaluate, args=(str(path), barrier, done)) for _ in range(2)]
    for worker in workers:
        worker.start()
    evaluated = [done.get(timeout=120)[0] for _ in range(20)]
    for worker in workers:
        worker.join(120)
    assert sorted(evaluated) == list(range(20))
    assert done.empty()


def _write_for_ever(path: str, counter: Any) -> None:
    with open_store(path) as store:
        for i in range(1_000_000):
            store.claim(H200, FORWARD, candidate(i + 1), Owner("mortal", "here", os.getpid()))
            store.record(H200, FORWARD, candidate(i), SOURCE, ok(1.0 + i))
            counter.value = i + 1  # committed: must be there whatever happens


@pytest.mark.parametrize("commits", [5, 23])
def test_a_process_killed_while_it_writes_leaves_all_it_committed(tmp_path: Path, commits: int) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()
    counter = SPAWN.Value("l", 0)
    worker = SPAWN.Process(target=_write_for_ever, args=(str(path), counter))
    worker.start()
    while counter.value < commits:
        assert worker.is_alive()
        time.sleep(0.001)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    committed = counter.value
    assert committed >= commits
    with open_store(path) as store:
        kept = [record.candidate.config["BLOCK_M"] for record in store.measurements()]
        assert kept[:committed] == list(range(committed))
        assert len(kept) <= committed + 1
        assert store.record(H200, FORWARD, candidate(-1), SOURCE, ok(0.5)) > 0
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert sqlite3.connect(path).execute("PRAGMA foreign_key_check").fetchall() == []


def _claim_and_die(path: str) -> None:
    with open_store(path) as store:
        store.claim(H200, FORWARD, candidate(), Owner.here())
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_claims_of_a_killed_process_are_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    open_store(path).close()
    worker = SPAWN.Process(target=_claim_and_die, args=(str(path),))
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    with open_store(path) as store:
        assert store.claim(H200, FORWARD, candidate(), Owner.here()).granted


def test_foreign_keys_and_wal_are_on(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store, store.read() as session:
        connection = session.connection()
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000


def test_a_forked_process_opens_connections_of_its_own(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0))
        child = multiprocessing.get_context("fork").Process(
            target=store.record, args=(H200, FORWARD, candidate(1), SOURCE, ok(2.0))
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
        store.record(H200, FORWARD, candidate(2), SOURCE, ok(3.0))
        assert [record.measurement.ms for record in store.measurements()] == [1.0, 2.0, 3.0]
    assert sqlite3.connect(tmp_path / "a.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_threads_share_a_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store, ThreadPoolExecutor(4) as pool:
        written = [pool.submit(store.record, H200, FORWARD, candidate(i), SOURCE, ok(1.0 + i)) for i in range(20)]
        assert sorted(future.result() for future in written) == list(range(1, 21))
        assert len(list(store.measurements())) == 20
