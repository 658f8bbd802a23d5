"""Problems in which there is nothing to compute, and those too large to be one: every command says so in a line."""

from pathlib import Path

import pytest

from autotune.cli.main import run

COMMANDS = (
    ["best", "--device", "h200"],
    ["search", "--trials", "1", "--device", "cpu"],
    ["search", "--quick", "--device", "cpu"],
    ["export", "--device", "h200", "-o", "made"],
    ["check", "--device", "cpu"],
)


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [("B", 0, "at least 1"), ("NH", 0, "at least 1"), ("T", 0, "at least 1"), ("T-kv", 0, "at least 1"),
     ("T", 2**30 + 1, "at most"), ("B", 2**31, "at most")],
)  # fmt: skip
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_problem_that_is_none_is_one_line(
    command: list[str], field: str, value: int, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.db"))
    assert run([*command, "--op", "forward", f"--{field}", str(value)]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert f"{field.replace('-', '_')}={value} must be {limit}" in said[0]
    assert not list(tmp_path.glob("made*"))
