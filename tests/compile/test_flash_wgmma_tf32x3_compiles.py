"""The fp32 family for Hopper: what its space admits neither spills nor makes ptxas serialise wgmma."""

from typing import Any

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_wgmma_tf32x3")
CASES: tuple[tuple[int, bool, dict[str, Any]], ...] = (
    (64, True, {"BLOCK_N": 64}),
    (64, False, {"BLOCK_M": 128, "BLOCK_N": 64, "OVERLAP": True, "Q_IN": "small_kept", "PING_PONG": True}),
    (128, True, {"BLOCK_M": 128, "BLOCK_N": 64, "STAGES": 1, "PARTS": 2}),
)


@pytest.mark.parametrize(("HS", "causal", "changed"), CASES)
def test_nothing_spills_or_is_serialised(HS: int, causal: bool, changed: dict[str, Any], cache: BuildCache) -> None:
    problem, spec = FORWARD.problem(HS=HS, dtype="fp32", causal=causal), gpu("h200")
    config = {**FAMILY.defaults, **changed}
    assert Space(FAMILY, problem, spec).why_not(config) is None
    for report in build_cubin(render(FAMILY, problem, config, spec), "sm_90a", cache).kernels:
        assert (report.spill_bytes, report.stack_bytes) == (0, 0)
