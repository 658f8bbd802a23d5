"""What the forward family on tensor cores does in its own way, on the emulator."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC, Judge, assert_no_bank_conflicts, traced, verdict

FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_mma")
HEAD_SIZES = (8, 32, 64, 80, 160, 192, 248, 256)


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def start(problem: Problem, number: int) -> dict[str, Any]:
    """One of the configurations that the family begins with, its default included."""
    starts = Space(FAMILY, problem, SPEC).starts()
    return dict(starts[number % len(starts)])


@pytest.mark.parametrize(("HS", "number"), [(80, 1), (128, 1), (200, 0), (256, 0), (248, 1), (256, 2)])
def test_every_head_size_is_right(HS: int, number: int, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=1, T=70, T_kv=150, HS=HS, dtype="fp16", causal=HS != 200)
    found = judge(problem, start(problem, number))
    assert (found.outcome, found.message) == (Outcome.OK, "")


@pytest.mark.parametrize(("HS", "dtype", "causal"), [(24, "bf16", True), (112, "fp16", False), (256, "bf16", True)])
def test_random_configurations_are_right(HS: int, dtype: str, causal: bool, judge: Judge) -> None:
    """A sample of the space of other head sizes, with another seed each."""
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=70, T_kv=177, HS=HS, dtype=dtype, causal=causal)
    space, rng = Space(FAMILY, problem, SPEC), np.random.default_rng(HS)
    for config in (space.sample(rng) for _ in range(3)):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stages_and_order_where_rows_see_no_key(stages: int, reverse: bool, judge: Judge) -> None:
    """Blocks without a key, with fewer tiles than stages, and warps that see nothing of a tile."""
    problem = FORWARD.problem(B=1, NH=1, T=203, T_kv=113, HS=32, dtype="fp16", causal=True)
    config = {**FAMILY.defaults, "STAGES": stages, "REVERSE": reverse, "BLOCK_N": 32}
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    for T, T_kv in ((203, 113), (300, 20), (64, 160)):
        found = judge(problem.replace(T=T, T_kv=T_kv), config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


def test_supports() -> None:
    for HS in HEAD_SIZES:
        for dtype in ("fp16", "bf16"):
            problem = FORWARD.problem(HS=HS, dtype=dtype)
            assert FAMILY.why_unsupported(problem, SPEC) is None
            assert Space(FAMILY, problem, SPEC).size > 1000
        assert Space(FAMILY, FORWARD.problem(HS=HS, dtype="fp16"), gpu("t4")).size > 100
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp32"), SPEC) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(HS=75, dtype="fp16"), SPEC) is None
    refused = FAMILY.why_unsupported(FORWARD.problem(HS=264, dtype="fp16"), SPEC)
    assert refused == "it needs max(HS, HS_v) <= 256 (a warp's rows of O fill its registers)"
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp16"), gpu("t4")) is None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="bf16"), gpu("t4")) is not None
    assert FAMILY.why_unsupported(FORWARD.problem(dtype="fp16"), replace(gpu("t4"), arch="sm_70")) is not None


CLEAN: tuple[dict[str, Any], ...] = (
    {},
    {"HS": 80, "STAGES": 1, "REVERSE": True, "Q_IN_REGISTERS": False},
    {"STAGES": 3, "BLOCK_M": 64, "WARPS": 2, "BLOCK_N": 32, "SWIZZLE": False},
    {"OVERLAP": 32},
    {"OVERLAP": 16, "BLOCK_M": 64, "BLOCK_N": 32, "PACK_HEADS": True, "SPLIT": 4},
    {"HS": 256, "WARPS_D": 2, "BLOCK_M": 64, "STAGES": 1, "Q_IN_REGISTERS": False},
    {"HS": 192, "WARPS_D": 2, "BLOCK_M": 64, "BLOCK_N": 32, "Q_IN_REGISTERS": False},
    {"HS": 128, "WARPS_D": 2, "BLOCK_N": 96, "SWIZZLE": False, "Q_IN_REGISTERS": False, "MIN_BLOCKS": 1},
)


@pytest.mark.parametrize("changed", CLEAN, ids=str)
def test_no_races_and_no_bank_conflicts(changed: Config, cache: BuildCache) -> None:
    """Every access of every thread is watched: races, bounds, copies not waited for, passes through shared memory."""
    config = {**FAMILY.defaults, **changed}
    HS = config.pop("HS", 64)
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=200, HS=HS, dtype="fp16", layout="bhtd")
    trace = traced(FAMILY, problem, config, cache)
    assert [str(found) for found in trace.findings] == []
    assert_no_bank_conflicts(trace, problem.integer("HS"))
