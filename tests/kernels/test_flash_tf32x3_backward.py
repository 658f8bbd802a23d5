"""The fp32 tensor core family of the backward pass on the emulator: hard shapes, layouts, strides, its parameters."""

from functools import partial

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from tests.kernels.attention_cases import (
    CASES,
    SPEC,
    AttentionCase,
    Judge,
    assert_no_bank_conflicts,
    covering,
    traced,
    verdict,
)
from tests.kernels.test_backward_kernels import (
    BACKWARD,
    GRADIENTS,
    agree,
    default,
    far_apart,
    inputs_of,
    odd_views,
    one_dout,
    repeats_itself,
    run,
)

FAMILY = find_template("backward", "flash_tf32x3")
HEAD_SIZES = (32, 64, 96, 128)
WAYS = ("in_place", "separate")
"""Of accumulating dQ."""


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def ways_of(problem: Problem) -> list[dict[str, Value]]:
    """The default configuration, once for each way of accumulating dQ."""
    configs = [default(FAMILY, problem, DQ_ACCUMULATE=way) for way in WAYS]
    assert all(Space(FAMILY, problem, SPEC).contains(config) for config in configs)
    return configs


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_case_is_right(case: AttentionCase, judge: Judge) -> None:
    problem = case.fitted("backward", ("fp32",), HEAD_SIZES)
    ways = ways_of(problem) if problem["HS"] == 64 and problem["causal"] else [default(FAMILY, problem)]
    for config in ways:
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


def test_every_parameter_value_is_right(judge: Judge) -> None:
    """Random configurations until each value of each parameter has been used, on lengths that no tile divides."""
    problem = BACKWARD.problem(B=1, NH=3, NH_kv=1, T=113, T_kv=203, HS=32, dtype="fp32", causal=True)
    for config in covering(Space(FAMILY, problem, SPEC), seed=3):
        found = judge(problem, config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize(("HS", "causal"), [(64, True), (96, True), (128, False)])
def test_random_configurations_are_right(HS: int, causal: bool, judge: Judge) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=177, HS=HS, dtype="fp32", causal=causal)
    config = Space(FAMILY, problem, SPEC).sample(np.random.default_rng(HS))
    found = judge(problem, config)
    assert (found.outcome, found.message) == (Outcome.OK, ""), config


@pytest.mark.parametrize(
    "changes", [{"PEEL": True, "REVERSE": True}, {"DQ_ACCUMULATE": "separate", "PEEL": False, "REVERSE": True}]
)
def test_order_where_rows_see_no_key(changes: dict[str, Value], judge: Judge) -> None:
    """Blocks without a pair, with one tile, and warps that see nothing of a tile."""
    problem = BACKWARD.problem(B=1, NH=1, T=203, T_kv=113, HS=32, dtype="fp32", causal=True)
    config = default(FAMILY, problem, **changes)
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    for T, T_kv in ((203, 113), (300, 20), (64, 160)):
        found = judge(problem.replace(T=T, T_kv=T_kv), config)
        assert (found.outcome, found.message) == (Outcome.OK, ""), (T, T_kv)


def test_rows_without_a_key_have_no_gradient(cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=70, HS=64, dtype="fp32", causal=True)
    for config in ways_of(problem):
        got = run(FAMILY, problem, config, inputs_of(problem, 2), {}, cache)
        assert (got["dq"][:, :, : 203 - 70] == 0).all()
        assert all(np.isfinite(got[name]).all() for name in GRADIENTS)
        assert (got["dq"][:, :, 203 - 69 :] != 0).any(axis=-1).all()


def test_odd_strides(cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    inputs = inputs_of(problem, 2)
    for config in ways_of(problem):
        agree(run(FAMILY, problem, config, inputs, odd_views(inputs), cache), problem, inputs)


def test_dout_of_zero_strides(cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=1, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    inputs, views = one_dout(inputs_of(problem, 3))
    agree(run(FAMILY, problem, default(FAMILY, problem), inputs, views, cache), problem, inputs)


@pytest.mark.parametrize("causal", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(causal: bool, cache: BuildCache) -> None:
    """Rows between one head's last and the next head's first hold NaN; `place` fills them so."""
    problem = BACKWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=causal)
    inputs = inputs_of(problem, 4)
    views = far_apart(inputs, 260)  # room for two of the largest tiles
    for config in ways_of(problem):
        agree(run(FAMILY, problem, config, inputs, views, cache), problem, inputs)


def test_the_way_without_atomics_repeats_itself_to_the_bit(cache: BuildCache) -> None:
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=150, T_kv=150, HS=64, dtype="fp32", causal=True)
    claims = [repeats_itself(FAMILY, problem, config, cache) for config in ways_of(problem)]
    assert claims == [False, True]


def test_products_keep_what_tf32_alone_loses(cache: BuildCache) -> None:
    """Errors are those of fp32, a hundredth of what rounding operands to tf32 costs."""
    problem = BACKWARD.problem(B=1, NH=1, NH_kv=1, T=128, T_kv=128, HS=64, dtype="fp32", causal=False)
    inputs = inputs_of(problem, 10)
    got = run(FAMILY, problem, default(FAMILY, problem), inputs, {}, cache)
    exact = BACKWARD.reference(problem, inputs)
    for name in GRADIENTS:
        error = np.abs(got[name].astype(np.float64) - exact[name]).max() / np.abs(exact[name]).max()
        assert error < 5e-6, name  # of tf32: about 5e-4


def test_supports() -> None:
    for HS in HEAD_SIZES:
        problem = BACKWARD.problem(HS=HS, dtype="fp32")
        assert FAMILY.why_unsupported(problem, SPEC) is None
        assert Space(FAMILY, problem, SPEC).size > 100
        assert Space(FAMILY, problem, gpu("rtx4090")).size > 10
    for refused in ({"dtype": "fp16"}, {"dtype": "bf16"}, {"dtype": "fp32", "HS": 80}, {"dtype": "fp32", "HS": 256}):
        assert FAMILY.why_unsupported(BACKWARD.problem(**refused), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp32"), gpu("t4")) is not None


@pytest.mark.parametrize(
    ("HS", "changes"),
    [
        (64, {}),
        (32, {"SWIZZLE": False, "BLOCK_M": 16, "DQ_WARPS_M": 1, "OWN_TILES": 2}),
    ],
)
def test_no_races_and_no_bank_conflicts(HS: int, changes: dict[str, Value], cache: BuildCache) -> None:
    """Every access watched: bounds, what nobody wrote, races, copies not waited for, and banks of shared memory."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=140, T_kv=170, HS=HS, dtype="fp32", causal=True)
    config = default(FAMILY, problem, **changes)
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    trace = traced(FAMILY, problem, config, cache)
    assert trace.complete
    assert [str(found) for found in trace.findings] == []
    assert_no_bank_conflicts(trace)
