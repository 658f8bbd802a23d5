"""Requests that make no sense, or that no machine can serve: one line on stderr, no bug."""

import os
from pathlib import Path

import pytest

from autotune.cli.main import run


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.db"))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["best", "--op", "a" * 3000], "unknown op"),
        (["best", "--op", "../forward"], "unknown op '../forward'"),
        (["export", "--op", "a" * 3000], "unknown op"),
        (["best", "--op", "forward", "--T", "9" * 30], "must be at most 1073741824"),
        (["best", "--op", "softmax", "--scale", "1e400"], "is not a finite number"),
        (["list", "trials", "--limit", "9" * 30], "less than or equal to 2147483647"),
        (["search", "--op", "forward", "--timeout", "inf"], "timeout=inf must be more than 0 seconds, and finite"),
        (["search", "--op", "forward", "--timeout", "nan"], "timeout=nan"),
        (["search", "--op", "forward", "--seed", "9" * 30], "at most 4294967295"),
        (["search", "--op", "forward", "--trials", "9" * 30], "at most 4294967295"),
        (["db", "import", os.sep], "Is a directory"),
    ],
)
def test_requests_that_make_no_sense(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_problem_that_no_memory_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--op", "forward", "--T", str(2**30), "--device", "cpu", "--trials", "1"]) == 1
    assert "is too large for this machine: Unable to allocate" in capsys.readouterr().err
