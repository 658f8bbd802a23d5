"""Searches in real processes that are killed, or interrupted with Ctrl-C."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.store import open_store
from tests.search_doubles import IDENTITY, PROBLEM

ROOT = Path(__file__).parents[2]


def start(folder: Path, trials: int, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.interrupted_search", folder / "db.sqlite", folder / "log"]
    return subprocess.Popen(
        [*map(str, command), str(trials), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def evaluated(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def wait_for(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(evaluated(folder)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def recorded(folder: Path) -> list[str]:
    with open_store(folder / "db.sqlite") as store:
        return [record.candidate.key for record in store.measurements(PROBLEM)]


@pytest.mark.parametrize("after", [1, 6])
def test_a_killed_search_goes_on_and_repeats_nothing(tmp_path: Path, after: int) -> None:
    first = start(tmp_path, 20, 0.02)
    wait_for(tmp_path, after)
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


def test_ctrl_c_once_finishes_with_the_best_so_far(tmp_path: Path) -> None:
    search = start(tmp_path, 90, 0.1)
    wait_for(tmp_path, 4)
    search.send_signal(signal.SIGINT)
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
    search = start(tmp_path, 90, 3.0)
    time.sleep(2.0)
    begun = time.monotonic()
    search.send_signal(signal.SIGINT)
    time.sleep(0.3)
    search.send_signal(signal.SIGINT)
    _, errors = search.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert search.returncode != 0
    assert time.monotonic() - begun < 30
    assert len(recorded(tmp_path)) <= 1


def test_searches_that_run_at_once_share_the_work(tmp_path: Path) -> None:
    searches = [start(tmp_path, 100, 0.02) for _ in range(2)]
    outputs = [search.communicate(timeout=120) for search in searches]
    assert all(output.split()[0] == "exhausted" or output.split()[0] == "trials" for output, _ in outputs), outputs
    assert len(evaluated(tmp_path)) == 100
    assert sorted(recorded(tmp_path)) == sorted(f"fam X={x}" for x in range(100))
