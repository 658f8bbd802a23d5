"""The winners that come with the package: sound, and still usable with the families as they are."""

from pathlib import Path
from typing import Any

import pytest

from autotune.answers.lookup import best
from autotune.core.errors import NoFeasibleConfiguration
from autotune.core.outcome import Outcome
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners

WINNERS = shipped_winners()
DEFAULT: dict[str, Any] = {"B": 4, "NH": 12, "HS": 64}


def test_there_are_winners_for_the_default_problem_and_its_lengths() -> None:
    keys = {line.problem.key for line in WINNERS if line.identity.name == "h200"}
    for op in ("forward", "backward"):
        for dtype in ("fp16", "fp32"):
            for T in (512, 1024, 2048, 4096):
                assert get_op(op).problem(**DEFAULT, T=T, dtype=dtype).key in keys


@pytest.mark.parametrize("line", WINNERS, ids=lambda line: line.problem.key)
def test_a_winner_was_measured_and_verified(line: Line) -> None:
    measurement = line.measurement
    assert measurement.outcome is Outcome.OK
    assert measurement.timing is not None
    assert measurement.timing.kind == "measured"
    assert 0 < measurement.timing.median_ms < 1e4
    assert measurement.verification is not None
    assert measurement.verification.passed


def test_winners_are_valid_configurations_today() -> None:
    for line in WINNERS:
        template = find_template(line.problem.op, line.candidate.template)
        space = Space(template, line.problem, gpu(line.identity.spec.name))
        assert space.why_not(line.candidate.config) is None, line.problem


def test_they_answer_where_the_user_has_none(tmp_path: Path) -> None:
    found = best("forward", device="h200", db=tmp_path / "none.db", **DEFAULT, T=1024, dtype="fp32")
    assert (found.answer, found.kind, found.origin) == ("exact", "measured", "shipped")
    near = best("forward", device="h200", db=tmp_path / "none.db", **DEFAULT, T=1100, dtype="fp32")
    assert (near.answer, near.found and near.found["T"]) == ("nearest", 1024)
    other = best("forward", device="h100", db=tmp_path / "none.db", **DEFAULT, T=1024, dtype="fp32")
    assert (other.answer, other.found_on) == ("architecture", "h200")
    with pytest.raises(NoFeasibleConfiguration):
        best("forward", device="h200", db=tmp_path / "none.db", HS=4096)


@pytest.mark.parametrize("HS", [24, 33, 72, 75, 80, 127, 160, 200, 255])
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_head_sizes_that_nobody_tuned_are_answered_by_tensor_cores(op: str, HS: int, tmp_path: Path) -> None:
    """By a start for the width of the tiles that they have, or a family's default for it."""
    hopper = {"forward": {"flash_wgmma"}, "backward": {"flash_mma", "flash_wgmma"}}[op]
    wanted = (("h200", hopper), ("a100", {"flash_mma"}), ("rtx4090", {"flash_mma"}))
    for dtype in ("fp16", "bf16"):
        for device, families in wanted:
            found = best(op, device=device, db=tmp_path / "none.db", B=2, NH=32, T=2048, HS=HS, dtype=dtype)
            assert found.candidate.template in families, (dtype, device)
    for device in ("h200", "a100", "rtx4090"):
        found = best(op, device=device, db=tmp_path / "none.db", B=2, NH=32, T=2048, HS=HS, dtype="fp32")
        assert "tf32x3" in found.candidate.template, device


def test_a_head_size_begins_where_the_width_of_its_tiles_does() -> None:
    """The first of flash_mma's starts for HS=80 is that for 96, of which its tiles are; both passes."""
    for op in ("forward", "backward"):
        family = find_template(op, "flash_mma")
        firsts = [Space(family, get_op(op).problem(HS=HS, dtype="fp16"), gpu("a100")).starts()[0] for HS in (80, 96)]
        assert firsts[0] == firsts[1]
