"""Searches in real processes that are killed, or interrupted with Ctrl-C."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.store import open_store
from tests.search_doubles import IDENTITY, PROBLEM

ROOT = Path(__file__).parents[2]


Search = subprocess.Popen[str]


def start(folder: Path, trials: int, seconds: float, *go: Path) -> Search:
    command = [sys.executable, "-m", "tests.interrupted_search", folder / "db.sqlite", folder / "log", trials, seconds]
    return subprocess.Popen(
        [*map(str, command), *map(str, go)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def evaluated(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def wait_for(happened: Callable[[], bool], *searches: Search) -> None:
    """For as long as it takes, while they run."""
    while not happened():
        assert all(search.poll() is None for search in searches), [search.communicate() for search in searches]
        time.sleep(0.01)


def recorded(folder: Path) -> list[str]:
    with open_store(folder / "db.sqlite") as store:
        return [record.candidate.key for record in store.measurements(PROBLEM)]


@pytest.mark.parametrize("after", [1, 6])
def test_a_killed_search_goes_on_and_repeats_nothing(tmp_path: Path, after: int) -> None:
    first = start(tmp_path, 20, 0.02)
    wait_for(lambda: len(evaluated(tmp_path)) >= after, first)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    kept, done = recorded(tmp_path), evaluated(tmp_path)
    assert len(done) - len(kept) <= 1  # the one that had been evaluated and was being recorded
    output, errors = start(tmp_path, 20, 0.0).communicate(timeout=120)
    assert output.split()[:2] == ["trials", str(len(kept))], errors
    again = evaluated(tmp_path)[len(done) :]
    assert not set(kept) & set(again)
    assert len(recorded(tmp_path)) == len(set(recorded(tmp_path))) == 20
    output, errors = start(tmp_path, 20, 0.0).communicate(timeout=120)
    assert output.split()[:2] == ["trials", "20"], errors
    assert len(evaluated(tmp_path)) == len(done) + len(again)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_once_finishes_with_the_best_so_far(tmp_path: Path, number: signal.Signals) -> None:
    """As do schedulers, containers and a terminal that is closed."""
    search = start(tmp_path, 90, 0.1)
    wait_for(lambda: len(evaluated(tmp_path)) >= 4, search)
    search.send_signal(number)
    output, errors = search.communicate(timeout=60)
    assert search.returncode == 0, errors
    stopped, _, winner = output.split()
    assert stopped == "interrupted"
    best = min(recorded(tmp_path), key=lambda key: abs(int(key.split("=")[1]) - 70))
    assert f"fam X={winner}" == best
    with open_store(tmp_path / "db.sqlite") as store:
        named = store.winner(PROBLEM, IDENTITY.name)
        assert named is not None
        assert named.record.candidate.key == best
        assert named.record.stage == "final"


def test_ctrl_c_twice_stops_at_once(tmp_path: Path) -> None:
    """In the midst of an evaluation that never ends by itself."""
    search = start(tmp_path, 90, float("inf"))
    for marker in ("log.begun", "log.interrupted"):
        wait_for((tmp_path / marker).exists, search)
        search.send_signal(signal.SIGINT)
    _, errors = search.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors
    assert search.returncode != 0
    assert recorded(tmp_path) == []


def test_searches_that_run_at_once_share_the_work(tmp_path: Path) -> None:
    go = tmp_path / "go"
    searches = [start(tmp_path, 100, 0.0, go) for _ in range(2)]
    wait_for(lambda: len(list(tmp_path.glob("log.ready-*"))) == 2, *searches)
    go.touch()
    outputs = [search.communicate(timeout=120) for search in searches]
    assert all(output.split()[0] == "exhausted" or output.split()[0] == "trials" for output, _ in outputs), outputs
    assert len(evaluated(tmp_path)) == 100
    assert sorted(recorded(tmp_path)) == sorted(f"fam X={x}" for x in range(100))
