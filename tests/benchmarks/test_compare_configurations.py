"""Which rows and contenders are compared side by side: shipped winners, and what is tried of them."""

import json
from pathlib import Path

import pytest

from autotune.families.template import find_template
from autotune.gpus.known import gpu
from benchmarks.compare_configurations import Row, answer, assigned, lines, main, valid, winners

FAMILY = find_template("backward", "flash_wgmma")
SPEC = gpu("h200")


def test_rows_are_winners_and_what_is_tried() -> None:
    tries = {text: assigned(text, FAMILY) for text in ("NEXT_KERNEL=at_end", "BLOCK_M=128,STAGGER=true", "BLOCK_N=128")}
    assert tries["BLOCK_M=128,STAGGER=true"] == {"BLOCK_M": 128, "STAGGER": True}
    (row,) = winners(FAMILY, ["B=4 NH=12 .* T=1024 .*HS=64 .*causal=1"], tries)
    kept = valid(row, FAMILY, SPEC)
    assert list(kept.configs) == ["winner", "NEXT_KERNEL=at_end"]  # the others are invalid, or the winner itself
    assert kept.configs["NEXT_KERNEL=at_end"] == {**kept.configs["winner"], "NEXT_KERNEL": "at_end"}
    found = answer(FAMILY, kept.problem, kept.configs["NEXT_KERNEL=at_end"], SPEC)
    assert [launch.overlaps for launch in found.plan.launches] == [False, True, True]


def test_what_is_listed_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--rows", "T=1024 .*HS=128 .*causal=1", "--try", "NEXT_KERNEL=at_start", "--list"]
    monkeypatch.setattr("sys.argv", ["compare_configurations", *words])
    assert main() == 0
    (tmp_path / "rows.jsonl").write_text(said := capsys.readouterr().out)
    (row,) = lines(tmp_path / "rows.jsonl")
    assert isinstance(row, Row)
    assert json.loads(said) == {"problem": row.problem.to_json(), "configs": dict(row.configs)}
    assert list(row.configs) == ["winner", "NEXT_KERNEL=at_start"]
