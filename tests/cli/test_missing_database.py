"""A database that is named and not there: what ships answers, and one line on stderr says so."""

import json
from pathlib import Path

import pytest

from autotune.cli.main import run
from tests.cli.calling import Capture

ASKED = ("--op", "forward", "--device", "h200")


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    return {"best": ["best", *ASKED], "export": ["export", *ASKED, "-o", str(tmp_path / "out.cu")]}


@pytest.mark.parametrize("way", ["path", "url", "variable"])
@pytest.mark.parametrize("command", ["best", "export"])
def test_it_is_said(
    command: str, way: str, commands: dict[str, list[str]], tmp_path: Path, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "nope.db"
    monkeypatch.setenv("AUTOTUNE_DB", str(path if way == "variable" else tmp_path / "other.db"))
    named = {"path": ["--db", str(path)], "url": ["--db", f"sqlite:///{path}"], "variable": []}[way]
    said = f"there is no database {path}: the answer is of what ships"
    assert run([*commands[command], *named]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"note: {said}\n"
    assert "no database" not in captured.out
    assert run([*commands[command], *named, "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["notes"][-1] == said
    assert captured.err == f"note: {said}\n"
    assert not path.exists()


@pytest.mark.parametrize("command", ["best", "export"])
def test_nothing_is_said_of_one_that_is_there_or_not_named(
    command: str, commands: dict[str, list[str]], db: Path, tmp_path: Path, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert run([*commands[command], "--db", str(db)]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("AUTOTUNE_DB")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    assert run(commands[command]) == 0
    assert capsys.readouterr().err == ""


def test_values_of_another_head_size_are_said_alike(commands: dict[str, list[str]], db: Path, capsys: Capture) -> None:
    for sizes, said in ((["--HS", "64"], None), (["--HS", "192", "--HS-v", "128"], 128)):
        problems = []
        for command in commands.values():
            assert run([*command, *sizes, "--json"]) == 0
            problems.append({"op": "forward", **json.loads(capsys.readouterr().out)["problem"]})
        assert problems[0] == problems[1]
        assert problems[0].get("HS_v") == said
