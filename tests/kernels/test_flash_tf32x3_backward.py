"""What the fp32 tensor core family of the backward pass does in its own way, on the emulator."""

from functools import partial

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.values import Value
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from tests.kernels.attention_cases import SPEC, Judge, assert_no_bank_conflicts, traced, verdict
from tests.kernels.backward_runs import BACKWARD, GRADIENTS, default, inputs_of, run

FAMILY = find_template("backward", "flash_tf32x3")
HEAD_SIZES = (8, 32, 64, 80, 128)


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


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
    for refused in ({"dtype": "fp16"}, {"dtype": "bf16"}, {"dtype": "fp32", "HS": 264}):
        assert FAMILY.why_unsupported(BACKWARD.problem(**refused), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp32"), gpu("t4")) is not None


@pytest.mark.parametrize(
    ("HS", "changes"),
    [
        (64, {}),
        (24, {"SWIZZLE": False, "BLOCK_M": 16, "DQ_WARPS_M": 1, "OWN_TILES": 2}),
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
