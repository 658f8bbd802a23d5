"""What `autotune search` prints and returns when Ctrl-C ends it early; a list of results stands in for searches."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.main import run
from autotune.ladder import climb
from autotune.ops.registry import get_op
from autotune.tuning import search as api
from autotune.tuning.result import SearchResult
from tests.ladder.ladder_doubles import climbed
from tests.report.test_search_report import result

Capture = pytest.CaptureFixture[str]


def of(T: int, **changes: Any) -> SearchResult:
    return replace(result(), problem=get_op("forward").problem(T=T), **changes)


DONE, STOPPED = of(64, stopped="trials"), of(128, stopped="interrupted", interrupted=True)
NOTHING = replace(STOPPED, best=None, table=())


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))


def searches(monkeypatch: pytest.MonkeyPatch, results: Sequence[SearchResult], then: BaseException | None) -> None:
    def sweep(*_: object, **__: object) -> Iterator[SearchResult]:
        yield from results
        if then is not None:
            raise then

    monkeypatch.setattr(api, "sweep", sweep)


@pytest.mark.parametrize(
    ("results", "then", "code", "lengths"),
    [
        ([DONE], None, 0, "64"),
        ([replace(DONE, best=None, table=())], None, 3, "64"),
        ([STOPPED], None, 130, "128"),
        ([NOTHING], None, 130, "128"),
        ([replace(DONE, interrupted=True)], None, 0, "64"),
        ([replace(DONE, interrupted=True)], None, 130, "64,256"),
        ([DONE, STOPPED], None, 130, "64,128,256"),
        ([DONE], KeyboardInterrupt(), 130, "64,128"),
        ([], KeyboardInterrupt(), 130, "64,128"),
    ],
)
def test_exit_code_and_problems_not_reached(
    results: Sequence[SearchResult], then: BaseException | None, code: int, lengths: str, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    searches(monkeypatch, results, then)
    assert run(["search", "--T", lengths]) == code
    shown = capsys.readouterr().out
    problems = [get_op("forward").problem(T=int(text)) for text in lengths.split(",")]
    missed = problems[len(results) :] if results else []
    assert [line for line in shown.splitlines() if line.startswith("not reached: ")] == [
        f"not reached: {problem}" for problem in missed
    ]
    assert shown.count("next: autotune export") == sum(one.best is not None for one in results)


def test_json_says_what_was_interrupted_and_what_not_reached(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    searches(monkeypatch, [DONE, STOPPED], None)
    assert run(["search", "--T", "64,128,256", "--json"]) == 130
    data = json.loads(capsys.readouterr().out)
    assert [(one["problem"]["T"], one["stopped"]) for one in data] == [
        (64, "trials"), (128, "interrupted"), (256, "not reached"),
    ]  # fmt: skip
    assert data[2]["best"] is None
    searches(monkeypatch, [STOPPED], None)
    assert run(["search", "--T", "128", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["stopped"] == "interrupted"


@pytest.mark.parametrize(("interrupted", "code"), [(False, 0), (True, 130)])
def test_a_ladder(interrupted: bool, code: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climb, "climb", lambda *_, **__: replace(climbed(), interrupted=interrupted))
    assert run(["ladder", "--op", "backward", "--device", "cpu"]) == code
    assert "ladder of " in capsys.readouterr().out
