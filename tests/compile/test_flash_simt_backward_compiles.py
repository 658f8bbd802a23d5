"""Every way in which `flash_simt` accumulates dQ compiles without a warning."""

from pathlib import Path

import pytest

from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.compile.strictly import compile_strictly


@pytest.mark.parametrize("accumulate", ["atomic", "in_place", "separate"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_every_way_of_dq_compiles(accumulate: str, prefetch: bool, tmp_path: Path) -> None:
    """Each renders other code."""
    family, spec = find_template("backward", "flash_simt"), gpu("h200")
    problem = get_op("backward").problem(dtype="fp32", HS=32)
    config = {**Space(family, problem, spec).default(), "DQ_ACCUMULATE": accumulate, "PREFETCH": prefetch}
    assert compile_strictly(render(family, problem, config, spec), spec.arch, tmp_path) == ""
