"""The backward family on tensor cores, emulated: hard shapes, dtypes, layouts, strides, special values, parameters."""

from pathlib import Path

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from tests.kernels.attention_cases import (
    CASE_NAMES,
    CASES,
    SPEC,
    AttentionCase,
    assert_no_bank_conflicts,
    covering,
    traced,
    verdict,
)
from tests.kernels.test_backward_kernels import (
    BACKWARD,
    GRADIENTS,
    Arrays,
    agree,
    default,
    far_apart,
    inputs_of,
    odd_views,
    one_dout,
    repeats_itself,
    run,
)

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


def on_tensor_cores(case: AttentionCase) -> Problem:
    """The case with operands and a head size that tensor cores take."""
    fields = dict(case.fields)
    if fields["dtype"] == "fp32":
        fields["dtype"] = "fp16"
    if fields["HS"] == 40:
        fields["HS"] = 32
    return BACKWARD.problem(**fields)


def ways_of(problem: Problem) -> list[dict[str, Value]]:
    """For each way of accumulating dQ that the problem allows, the default or a plainer configuration."""
    space = Space(FAMILY, problem, SPEC)
    wide: dict[str, Value] = {"WARPS_D": 2, "BLOCK_N": 64, "STAGES": 1}
    plainer: tuple[dict[str, Value], ...] = ({}, _PLAIN, {**_PLAIN, "DQ_WARPS_M": 4}, {**_PLAIN, **wide})
    configs = [[{**space.default(), **plain, "DQ_ACCUMULATE": way} for plain in plainer] for way in WAYS]
    return [valid[0] for tries in configs if (valid := [config for config in tries if space.contains(config)])]


@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_every_case_is_right(case: AttentionCase, cache: BuildCache) -> None:
    problem = on_tensor_cores(case)
    assert FAMILY.why_unsupported(problem, SPEC) is None
    found = verdict(FAMILY, problem, default(FAMILY, problem), cache)
    assert (found.outcome, found.message) == OK


@pytest.mark.parametrize("HS", [32, 64, 96, 128, 192, 256])
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


@pytest.mark.parametrize(("dtype", "seed"), [("fp16", 3), ("bf16", 4)])
def test_every_parameter_value_is_right(dtype: str, seed: int, cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=3, NH_kv=1, T=113, T_kv=203, HS=64, dtype=dtype, causal=True)
    for config in covering(Space(FAMILY, problem, SPEC), seed):
        found = verdict(FAMILY, problem, config, cache)
        assert (found.outcome, found.message) == OK, config


@pytest.mark.parametrize("seed", range(10))
def test_random_configurations_are_right(seed: int, cache: BuildCache) -> None:
    rng = np.random.default_rng(seed)
    problem = on_tensor_cores(CASES[int(rng.integers(len(CASES)))])
    config = dict(Space(FAMILY, problem, SPEC).sample(rng))
    found = verdict(FAMILY, problem, config, cache)
    assert (found.outcome, found.message) == OK, (problem, config)


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


def test_odd_strides(cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp16", causal=True)
    inputs = inputs_of(problem, 2)
    for config in ways_of(problem):
        agree(run(FAMILY, problem, config, inputs, odd_views(inputs), cache), problem, inputs, 3e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp16", 3e-3), ("bf16", 2.5e-2)])
def test_dout_of_zero_strides(dtype: str, tolerance: float, cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=1, T=37, T_kv=50, HS=64, dtype=dtype, causal=True)
    inputs, views = one_dout(inputs_of(problem, 3))
    got = run(FAMILY, problem, default(FAMILY, problem), inputs, views, cache)
    agree(got, problem, inputs, tolerance)


@pytest.mark.parametrize("causal", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(causal: bool, cache: BuildCache) -> None:
    """Rows between one head's last and the next head's first hold NaN; `place` fills them so."""
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp16", causal=causal)
    inputs = inputs_of(problem, 4)
    views = far_apart(inputs, 260)  # room for two of the largest tiles
    for config in ways_of(problem):
        agree(run(FAMILY, problem, config, inputs, views, cache), problem, inputs, 3e-3)


def sharp(problem: Problem, factor: float) -> Arrays:
    """Inputs whose log-sum-exps are in the hundreds, and what the forward pass made of them."""
    inputs = inputs_of(problem, 5)
    inputs["k"] = np.abs(inputs["k"])
    inputs["q"] = np.abs(inputs["q"]) * inputs["q"].dtype.type(factor)
    forward = BACKWARD.reference(problem, inputs)  # checks that the inputs are whole
    assert set(forward) == set(GRADIENTS)
    scores = np.einsum("bhid,bhjd->bhij", inputs["q"].astype(np.float64), inputs["k"].astype(np.float64))
    scores *= BACKWARD.scalars(problem)["scale"]
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    inputs["lse"] = (top + np.log(total))[..., 0].astype(np.float32)
    inputs["out"] = (weights / total @ inputs["v"].astype(np.float64)).astype(inputs["out"].dtype)
    return inputs


@pytest.mark.parametrize("factor", [64.0, -64.0])
def test_large_scores_are_stable(factor: float, cache: BuildCache) -> None:
    """exp(score - lse) overflows for keys that are not there, whose score is 0, if the log-sum-exp is far below 0."""
    problem = BACKWARD.problem(B=1, NH=1, NH_kv=1, T=70, T_kv=70, HS=64, dtype="fp16", causal=False)
    inputs = sharp(problem, factor)
    assert (inputs["lse"] * np.sign(factor) > 100).all()
    for config in ways_of(problem):
        got = run(FAMILY, problem, config, inputs, {}, cache)
        assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
        agree(got, problem, inputs, 1e-2)


def test_blocks_of_their_own_for_dq_repeat_themselves_to_the_bit(cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=150, HS=64, dtype="fp16", causal=True)
    claims = [repeats_itself(FAMILY, problem, config, cache) for config in ways_of(problem)]
    assert claims == [False, False, True, True]


def test_what_it_does_not_support() -> None:
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp32"), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp16", HS=40), SPEC) is not None
    for HS in (32, 64, 96, 128, 192, 256):
        assert Space(FAMILY, BACKWARD.problem(HS=HS, dtype="bf16"), SPEC).size > 50


def test_the_code_does_not_depend_on_the_shape(cache: BuildCache, tmp_path: Path) -> None:
    """One binary serves all lengths, batches and numbers of heads."""
    config = default(FAMILY, BACKWARD.problem(dtype="fp16"))
    first, second = (
        build_emulator(render(FAMILY, BACKWARD.problem(dtype="fp16", B=B, NH=6, T=T), config, SPEC), cache)
        for B, T in ((1, 64), (3, 200))
    )
    assert first.path == second.path


@pytest.mark.parametrize(
    ("HS", "changes"),
    [
        (64, {}),
        (64, {"SWIZZLE": False, "STAGES": 1}),
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
    assert_no_bank_conflicts(trace)
