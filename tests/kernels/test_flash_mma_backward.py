"""What the backward family on tensor cores does in its own way, on the emulator."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.space import Space
from autotune.families.template import find_template
from tests.kernels.attention_cases import SPEC, assert_no_bank_conflicts, traced, verdict
from tests.kernels.backward_runs import BACKWARD, GRADIENTS, agree, default, inputs_of, run

FAMILY = find_template("backward", "flash_mma")
OK = (Outcome.OK, "")
WAYS = ["atomic", "atomic_later", "separate", "alongside"]
"""Of accumulating dQ."""

_PLAIN: dict[str, Value] = {
    "BLOCK_M": 64,
    "WARPS_D": 1,
    "OWN_TILES": 1,
    "SPLIT": "columns",
    "DQ_WARPS_M": 2,
    "MIN_BLOCKS": 1,
}


def ways_of(problem: Problem) -> list[dict[str, Value]]:
    """For each way of accumulating dQ that the problem allows, the default or a plainer configuration."""
    space = Space(FAMILY, problem, SPEC)
    wide: dict[str, Value] = {"WARPS_D": 2, "BLOCK_N": 64, "STAGES": 1}
    plainer: tuple[dict[str, Value], ...] = ({}, _PLAIN, {**_PLAIN, "DQ_WARPS_M": 4}, {**_PLAIN, **wide})
    configs = [[{**space.default(), **plain, "DQ_ACCUMULATE": way} for plain in plainer] for way in WAYS]
    return [valid[0] for tries in configs if (valid := [config for config in tries if space.contains(config)])]


@pytest.mark.parametrize("HS", [24, 64, 80, 128, 184, 256])
def test_every_head_size_is_right(HS: int, cache: BuildCache) -> None:
    """Every way of accumulating dQ; lengths that divide no tile."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=77, T_kv=150, HS=HS, dtype="fp16", causal=True)
    configs = ways_of(problem)
    assert [config["DQ_ACCUMULATE"] for config in configs] == [
        way for way in WAYS if HS <= 128 or way != "atomic_later"
    ]
    for config in configs:
        found = verdict(FAMILY, problem, config, cache)
        assert (found.outcome, found.message) == OK, config


@pytest.mark.parametrize("HEADS_AT_ONCE", [1, 4, 8])
def test_groups_of_heads_need_not_be_full(HEADS_AT_ONCE: int, cache: BuildCache) -> None:
    """9 key heads, 18 query heads, 27 of both: a group of 4 or 8 is the last one, and not full, in every grid."""
    problem = BACKWARD.problem(B=3, NH=6, NH_kv=3, T=37, T_kv=50, HS=32, dtype="fp16", causal=True)
    inputs = inputs_of(problem, 6)
    for config in ways_of(problem):
        grouped = {**config, "HEADS_AT_ONCE": HEADS_AT_ONCE}
        assert Space(FAMILY, problem, SPEC).why_not(grouped) is None
        agree(run(FAMILY, problem, grouped, inputs, {}, cache), problem, inputs, 3e-3)


def test_a_group_leaves_heads_to_others() -> None:
    """Otherwise it is what 0 says: one name for one kernel."""
    problem = BACKWARD.problem(B=2, NH=4, NH_kv=4, dtype="fp16")
    space = Space(FAMILY, problem, SPEC)
    assert [HEADS for HEADS in (0, 1, 4, 8, 16) if space.contains({**space.default(), "HEADS_AT_ONCE": HEADS})] == [
        0,
        1,
        4,
    ]


@pytest.mark.parametrize("config", [{}, {"PEEL": True}, {"REVERSE": True}, {"DQ_ACCUMULATE": "alongside"}])
def test_rows_without_a_key(config: dict[str, Value], cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=70, HS=32, dtype="fp16", causal=True)
    got = run(FAMILY, problem, default(FAMILY, problem, **config), inputs_of(problem, 2), {}, cache)
    assert (got["dq"][:, :, : 203 - 70] == 0).all()
    assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
    assert (got["dq"][:, :, 203 - 69 :] != 0).any(axis=-1).all()


def test_what_it_does_not_support() -> None:
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp32"), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp16", HS=257), SPEC) is not None
    for HS in (1, 64, 75, 160, 192, 250):
        assert Space(FAMILY, BACKWARD.problem(HS=HS, dtype="bf16"), SPEC).size > 50


@pytest.mark.parametrize(
    ("HS", "changes"),
    [
        (64, {}),
        (64, {"SWIZZLE": False, "STAGES": 1}),
        (80, {"OWN_TILES": 1, "BLOCK_N": 64, "STAGES": 1, "MIN_BLOCKS": 1}),
        (64, {"DQ_ACCUMULATE": "alongside", "IN_REGISTERS": "one", "SCHEDULE": "overlapped", "CHUNK": 16}),
        (64, {"DQ_ACCUMULATE": "atomic_later", "STMATRIX": True, "SCHEDULE": "in_turn"}),
        (128, {"WARPS_D": 2, "MIN_BLOCKS": 1, "BLOCK_N": 64, "CHUNK": 16, "STAGES": 1}),
        (128, {"WARPS_D": 2, "MIN_BLOCKS": 1, "SPLIT": "gradients", "STMATRIX": True, "SCHEDULE": "in_turn"}),
        (192, {"DQ_ACCUMULATE": "separate", "WARPS_D": 2, "MIN_BLOCKS": 1, "BLOCK_N": 64, "OWN_TILES": 1, "STAGES": 1}),
    ],
)
def test_no_races_and_no_bank_conflicts(HS: int, changes: dict[str, Value], cache: BuildCache) -> None:
    """Every access watched: bounds, what nobody wrote, races, copies not waited for, and banks of shared memory."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=140, T_kv=170, HS=HS, dtype="fp16", causal=True)
    config = {**FAMILY.defaults, **changes}
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    trace = traced(FAMILY, problem, config, cache)
    assert trace.complete
    assert [str(found) for found in trace.findings] == []
    assert_no_bank_conflicts(trace, HS)
