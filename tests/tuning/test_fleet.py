"""Several workers at one database, real processes all: a real PostgreSQL where there is one, and a SQLite file.

What befalls them here befalls fleets: kill -9, a machine that stands still, a server that restarts or says nothing, two
containers of one host. Time-outs are short where they must pass, and long where a slow machine must not reach them.
"""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from autotune.core.errors import DatabaseAway
from autotune.store import open_store
from autotune.store.patience import Patience
from autotune.store.tables import Claim
from tests.fleet_worker import BEST, Orders, work
from tests.processes import alive, eventually
from tests.search_doubles import PROBLEM
from tests.store.store_servers import Server

ROOT = Path(__file__).parents[2]

# What workers import is imported once, in the process that they are forked from.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.fleet_worker"])


@dataclass
class Worker:
    """A process, and what it was told to do."""

    process: "ForkServerProcess | subprocess.Popen[bytes]"
    orders: Orders

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> bool:
        return not alive(self.pid)

    def last_words(self) -> str:
        while not self.ended():  # for as long as a test may take
            time.sleep(0.02)
        return Path(self.orders.says).read_text(encoding="utf-8")

    def said(self) -> dict[str, Any]:
        """What it found."""
        found: dict[str, Any] = json.loads(self.last_words())
        return found


@contextmanager
def working(*orders: Orders, within: Sequence[str] = ()) -> Iterator[list[Worker]]:
    """Workers that do so; at the end of the block they are killed, should they still."""
    workers = []
    try:
        for one in orders:
            told = replace(one, says=f"{one.log}.says-{uuid.uuid4().hex}")
            if within:
                command = [*within, sys.executable, "-m", "tests.fleet_worker", json.dumps(asdict(told))]
                workers.append(Worker(subprocess.Popen(command, cwd=ROOT), told))
            else:
                process = FORKS.Process(target=work, args=(told,))
                process.start()
                workers.append(Worker(process, told))
        yield workers
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join() if isinstance(worker.process, ForkServerProcess) else worker.process.wait()


def evaluated(orders: Orders) -> list[int]:
    log = Path(orders.log)
    return [int(line.split()[0]) for line in log.read_text().splitlines()] if log.exists() else []


def recorded(url: str) -> list[int]:
    with open_store(url) as store:
        return [int(record.candidate.config["X"]) for record in store.measurements(PROBLEM)]


def claims(url: str) -> int:
    with open_store(url) as store, store.read() as session:
        return session.query(Claim).count()


def start_together(folder: Path, count: int) -> None:
    """Let workers go once all are ready."""
    eventually(lambda: len(list(folder.glob("log.ready-*"))) == count)
    (folder / "go").touch()


@pytest.mark.parametrize("count", [2, 4])
def test_a_budget_is_shared_exactly_and_all_say_the_same(url: str, tmp_path: Path, count: int) -> None:
    base = Orders(url, str(tmp_path / "log"), size=200, trials=40, go=str(tmp_path / "go"), seconds=0.005)
    orders = [replace(base, seed=seed) for seed in range(count)]
    open_store(url).close()
    with working(*orders) as workers:
        start_together(tmp_path, count)
        results = [worker.said() for worker in workers]
    assert len(evaluated(base)) == len(set(evaluated(base))) == 40
    assert sorted(recorded(url)) == sorted(evaluated(base))
    best = min(recorded(url), key=lambda x: abs(x - BEST))
    assert [(one["stopped"], one["trials"], one["best"]) for one in results] == [("trials", 40, best)] * count
    assert sum(one["new"] for one in results) == 40
    assert claims(url) == 0


def test_running_workers_take_over_from_one_that_died(url: str, tmp_path: Path) -> None:
    """On another host, so that its silence alone tells. It had begun with the family's own start, X=0."""
    base = Orders(url, str(tmp_path / "log"), size=12, lease_s=2.0)
    lost = replace(base, place="another host", sampler="tpe", hangs=0)
    with working(lost) as [mortal]:
        eventually(lambda: evaluated(base) == [0])
        with working(base) as [worker]:
            eventually(lambda: len(set(evaluated(base))) == 1 + 12 - 3)  # all that it had not claimed
            mortal.signal(signal.SIGKILL)
            found = worker.said()
    assert (found["stopped"], found["trials"], found["best"]) == ("exhausted", 12, 11)
    assert sorted(recorded(url)) == list(range(12))
    assert claims(url) == 0


def test_a_space_is_not_exhausted_while_others_are_at_it(url: str, tmp_path: Path) -> None:
    """A worker that finds all of a space claimed waits, and then says what has come out, in place of "no winner"."""
    base = Orders(url, str(tmp_path / "log"), size=2, go=str(tmp_path / "go"), seconds=1.5)
    with working(base) as [first]:
        start_together(tmp_path, 1)
        eventually(lambda: len(evaluated(base)) == 1)  # both are claimed
        with working(replace(base, seed=1)) as [second]:
            assert [(one["stopped"], one["trials"], one["best"]) for one in (first.said(), second.said())] == [
                ("exhausted", 2, 1), ("exhausted", 2, 1),
            ]  # fmt: skip
    assert sorted(evaluated(base)) == [0, 1]


def test_workers_of_two_containers_share_the_work(url: str, tmp_path: Path) -> None:
    """Each has a PID namespace of its own, and both have the host's name."""
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no PID namespaces can be made here (unshare --pid)")
    base = Orders(url, str(tmp_path / "log"), size=40, go=str(tmp_path / "go"), seconds=0.02)
    open_store(url).close()
    orders = [replace(base, seed=seed) for seed in range(2)]
    with working(*orders, within=alone) as workers:
        start_together(tmp_path, 2)
        results = [worker.said() for worker in workers]
    assert Counter(evaluated(base)) == dict.fromkeys(range(40), 1)
    assert [(one["trials"], one["best"]) for one in results] == [(40, 39)] * 2
    assert min(one["new"] for one in results) > 0


def test_others_go_on_when_a_worker_freezes_in_a_write(postgres: str, tmp_path: Path) -> None:
    """It holds the lock of all writers; the server gives it up in its place. Once thawed it finds its way back."""
    base = Orders(postgres, str(tmp_path / "log"), size=30, lease_s=4.0, patience={"idle_s": 1.0})
    with working(replace(base, freezes=5, place="another host")) as [frozen]:
        eventually(lambda: stopped(frozen.pid))
        with working(base) as [worker]:
            found = worker.said()
        assert (found["stopped"], found["trials"], found["best"]) == ("exhausted", 30, 29)
        frozen.signal(signal.SIGCONT)
        assert (thawed := frozen.said())["trials"] == 30
        assert thawed["best"] == 29
    assert sorted(recorded(postgres)) == list(range(30))


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def test_workers_outlive_a_restart_of_the_server(postgres: str, server: Server, tmp_path: Path) -> None:
    base = Orders(postgres, str(tmp_path / "log"), size=200, trials=60, seconds=0.02)
    with working(base, replace(base, seed=1)) as workers:
        eventually(lambda: len(evaluated(base)) >= 20)
        server.stop()
        try:
            time.sleep(1.0)
            assert len(evaluated(base)) < 60
            assert not any(worker.ended() for worker in workers)
        finally:
            server.start()
        results = [worker.said() for worker in workers]
    assert [one["trials"] for one in results] == [60, 60]
    assert len(recorded(postgres)) == len(set(recorded(postgres))) == 60
    assert len({one["best"] for one in results}) == 1


def test_workers_outlive_a_server_that_stands_still(postgres: str, server: Server, tmp_path: Path) -> None:
    """Its connections stay open and nothing comes: each transaction is given up after a while, and tried again."""
    base = Orders(
        postgres, str(tmp_path / "log"), size=100, trials=40, seconds=0.02, patience={"answer_s": 2.0, "connect_s": 2.0}
    )
    with working(base) as [worker]:
        eventually(lambda: len(evaluated(base)) >= 10)
        processes = [server.pid, *children(server.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(3.0)
            assert not worker.ended()
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        assert worker.said()["trials"] == 40
    assert len(recorded(postgres)) == len(set(recorded(postgres))) == 40


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], check=True, capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def test_a_server_that_never_answers_is_given_up() -> None:
    pytest.importorskip("psycopg")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"postgresql+psycopg://u@127.0.0.1:{listener.getsockname()[1]}/x"
        with pytest.raises(DatabaseAway, match=r"the database server cannot be used now: .*timeout"):
            open_store(url, patience=Patience(connect_s=2.0))


def test_a_server_that_stays_away_ends_a_search_in_words(postgres: str, server: Server, tmp_path: Path) -> None:
    orders = Orders(postgres, str(tmp_path / "log"), seconds=0.02, patience={"outage_s": 1.0})
    with working(orders) as [worker]:
        eventually(lambda: len(evaluated(orders)) >= 5)
        server.stop()
        try:
            words = worker.last_words()
        finally:
            server.start()
    assert "it has been so for 1 s: run the command again later" in words
    done = len(set(evaluated(orders)))
    assert done - len(recorded(postgres)) <= 1  # the one that was being recorded


def test_killed_workers_lose_and_double_nothing(url: str, tmp_path: Path) -> None:
    base = Orders(url, str(tmp_path / "log"), size=60, trials=40, seconds=0.01, lease_s=2.0)
    open_store(url).close()
    orders = [replace(base, seed=n, place=f"host {n}") for n in range(3)]
    with working(*orders) as workers:
        eventually(lambda: len(evaluated(base)) >= 8)
        workers[0].signal(signal.SIGKILL)
        eventually(lambda: len(evaluated(base)) >= 20)
        workers[1].signal(signal.SIGKILL)
        found = workers[2].said()
    assert (found["stopped"], found["trials"]) == ("trials", 40)
    assert len(recorded(url)) == len(set(recorded(url))) == 40
    assert set(recorded(url)) == set(evaluated(base))
    assert len(evaluated(base)) <= 40 + 2 * 3  # what the dead were at is done anew
    assert claims(url) == 0
