"""Whether a search runs: a process that was killed could not say that it ended, and others may be elsewhere."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from autotune.cli.main import run
from autotune.store import Owner, open_store
from autotune.store.records import StoredSearch
from autotune.store.tables import SearchRow
from autotune.tuning import session as sessions
from autotune.tuning.search import search
from tests.processes import eventually
from tests.store.store_records import FORWARD, H200, SOURCE, candidate, ok

SETTINGS = {"sampler": "parzen", "seed": 0}

WRONG: dict[str, Any] = {"id": "", "host": "", "pid": 1}

SEARCHING = """
import sys, time
from autotune.store import Owner, open_store
from tests.store.store_records import FORWARD, H200
with open_store(sys.argv[1]) as store:
    store.start_search(H200, FORWARD, {"sampler": "parzen", "seed": 0}, {"trials": 9}, Owner.here())
    print("begun", flush=True)
    time.sleep(600)
"""


@contextmanager
def searching(url: str) -> Iterator["subprocess.Popen[str]"]:
    """Another process that is at a search."""
    with subprocess.Popen([sys.executable, "-c", SEARCHING, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def stands(url: str) -> StoredSearch:
    with open_store(url) as store:
        [found] = store.searches()
    return found.search


@pytest.mark.parametrize("waited_for", [True, False])
def test_a_killed_search_is_interrupted(
    url: str, waited_for: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with searching(url) as process:
        during = stands(url)
        assert (during.state, during.unheard(time.time()), during.budget) == ("running", "", {"trials": 9})
        assert [(r.owner.pid, r.here) for r in during.runners] == [(process.pid, True)]
        os.kill(process.pid, signal.SIGKILL)
        if waited_for:
            process.wait()
        eventually(lambda: stands(url).state == "interrupted")  # be it a zombie
        with open_store(url) as store:
            store.record(H200, FORWARD, candidate(0), SOURCE, ok(1.0), 1)
        assert run(["report", "--no-examine", "--db", url, "--output", str(tmp_path / "page.html")]) == 0
        assert "<td>interrupted</td>" in (tmp_path / "page.html").read_text()
        capsys.readouterr()
        assert run(["list", "searches", "--json", "--db", url]) == 0
        [row] = json.loads(capsys.readouterr().out)
        assert (row["state"], row["runs on"]) == ("interrupted", "")
        assert run(["list", "searches", "--db", url]) == 0
        heading, line = capsys.readouterr().out.splitlines()
        assert "interrupted" in line
        assert "runs on" not in heading
    again = Owner.here()
    with open_store(url) as store:
        resumed = store.start_search(H200, FORWARD, SETTINGS, {}, again)
        assert (resumed.state, [runner.owner for runner in resumed.runners]) == ("running", [again])
        store.end_search(resumed.id, "finished", again)
    assert (stands(url).state, stands(url).runners) == ("finished", ())


def test_a_number_may_be_another_processs_by_now(url: str) -> None:
    mine = Owner.here()
    with open_store(url) as store:
        store.start_search(H200, FORWARD, SETTINGS, {}, replace(mine, started=mine.started - 1))
    assert stands(url).state == "interrupted"


@pytest.mark.parametrize("place", ["another boot pid:[1]", ""])
def test_nothing_is_taken_for_known_of_others(url: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    gone = replace(Owner.here(), host="lab2", pid=2**22 + 1, place=place)
    with open_store(url) as store:
        begun = store.start_search(H200, FORWARD, SETTINGS, {}, gone)
    found = stands(url)
    assert found.state == "running"
    assert found.unheard(begun.runners[0].since + 7500) == "lab2, begun 2:05:00 ago"
    assert run(["list", "searches", "--db", url]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert "runs on" in heading
    assert "running" in line
    assert "lab2, begun 0:0" in line
    assert run(["list", "searches", "--csv", "--db", url]) == 0
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["state"], row["runs on"].partition(",")[0]) == ("running", "lab2")


def test_several_are_at_one_search(url: str) -> None:
    mine = [Owner.here() for _ in range(2)]
    with searching(url) as process, open_store(url) as store:
        for owner in mine:
            begun = store.start_search(H200, FORWARD, SETTINGS, {"trials": 20}, owner)
        assert len(begun.runners) == 3
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert [runner.owner for runner in stands(url).runners] == mine
        store.end_search(begun.id, "finished", mine[0])
        assert stands(url).state == "running"  # the other one is still at it
        store.end_search(begun.id, "finished", mine[1])
    assert (stands(url).state, stands(url).budget) == ("finished", {"trials": 20})


@pytest.mark.parametrize(
    "runners",
    [
        None, "nonsense", [3], [{}], [{"owner": {}, "since": 0}], [{"owner": WRONG | {"pid": "x"}, "since": 0}],
        [{"owner": WRONG, "since": "then"}],
    ],
)  # fmt: skip
def test_records_that_do_not_tell(url: str, runners: Any) -> None:
    """Of an older version, or edited: what they say, and since when."""
    with open_store(url) as store:
        begun = store.start_search(H200, FORWARD, SETTINGS, {"trials": 3})
        if runners is not None:
            with store.write() as session:
                row = session.scalars(select(SearchRow)).one()
                row.budget = {**row.budget, "runners": runners}
    found = stands(url)
    assert (found.state, found.runners, found.budget) == ("running", (), {"trials": 3})
    assert found.unheard(begun.updated_at.timestamp() + 61) == "begun 1:01 ago"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_search_that_an_exception_ends_is_interrupted(
    error: type[BaseException], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: sessions.Session) -> None:
        assert stands(url).state == "running"
        raise error

    monkeypatch.setattr(sessions.Session, "run", fail)
    with pytest.raises(error):
        search("softmax", device="cpu", target="h200", db=url, T=16, T_kv=16, NH=1, B=1, trials=1)
    found = stands(url)
    assert (found.state, found.runners) == ("interrupted", ())
