"""The forward families of the ladder on the emulator: hard shapes, strides, special values, parameters, races."""

from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.ops.registry import get_op
from autotune.trace.tracing import trace_plan
from tests.kernels.attention_cases import CASE_NAMES, CASES, SPEC, AttentionCase, covering, verdict
from tests.kernels.test_forward_kernels import Run, agree, packed, place

FORWARD = get_op("forward")
FAMILIES = tuple(find_template("forward", name) for name in ("naive", "minimal_flash", "warp_per_query"))
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
COPY = find_template("permute", "copy")


def right(family: Template, problem: Problem, config: dict[str, Value], cache: BuildCache) -> None:
    found = verdict(family, problem, config, cache)
    assert (found.outcome, found.message) == (Outcome.OK, ""), config


@each_family
@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_every_case_is_right(family: Template, case: AttentionCase, cache: BuildCache) -> None:
    problem = case.problem("forward")
    assert family.why_unsupported(problem, SPEC) is None
    right(family, problem, dict(Space(family, problem, SPEC).default()), cache)


@each_family
def test_every_parameter_value_is_right(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=2, NH=3, NH_kv=1, T=53, T_kv=103, HS=40, dtype="bf16", causal=True)
    for config in covering(Space(family, problem, SPEC), seed=3):
        right(family, problem, config, cache)


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.name)
def odd(request: pytest.FixtureRequest, cache: BuildCache) -> Run:
    """More keys than queries, in tiles that are cut."""
    problem = FORWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    return Run(request.param, problem, cache)


def test_odd_strides(odd: Run) -> None:
    """An inner stride of 2, rows that start between vectors, a base that is not aligned, an output with gaps."""
    inputs = FORWARD.inputs(odd.problem, seed=2)
    got = odd(
        {
            "q": place(inputs["q"], (2 * 37 * 128, 37 * 128, 128, 2)),
            "k": place(inputs["k"], (50 * 2 * 67, 67, 2 * 67, 1)),
            "v": place(inputs["v"], (2 * 50 * 64, 50 * 64, 64, 1), offset=1),
            "out": place(np.zeros((2, 2, 37, 64), np.float32), (2 * 37 * 65, 37 * 65, 65, 1), offset=3),
        }
    )
    agree(got, odd.reference(inputs))


def test_nan_beyond_the_valid_rows_does_not_leak(odd: Run) -> None:
    """Rows between one head's last key and the next head's first hold NaN; `place` fills them so."""
    inputs = FORWARD.inputs(odd.problem, seed=4)
    gap = 64 * 80  # elements between heads: room for 80 rows
    got = odd({name: place(array, (2 * gap, gap, 64, 1)) for name, array in inputs.items()})
    agree(got, odd.reference(inputs))


def test_nan_in_a_key_reaches_those_that_see_it_alone(odd: Run) -> None:
    inputs = FORWARD.inputs(odd.problem, seed=6)
    inputs["k"][0, 0, 40, 7] = np.nan  # query i sees keys up to i + 13
    inputs["v"][0, 1, 40, 3] = np.nan
    got = odd({name: packed(array) for name, array in inputs.items()})
    assert np.isnan(got["out"][0, 0, 27:]).all()
    assert np.isfinite(got["out"][0, 0, :27]).all()
    assert np.isnan(got["out"][0, 1, 27:, 3]).all()
    assert np.isfinite(np.delete(got["out"][0, 1], 3, axis=1)).all()
    assert np.isfinite(got["out"][0, 1, :27]).all()
    assert np.isfinite(got["out"][1]).all()


def test_large_scores_are_stable(odd: Run) -> None:
    inputs = FORWARD.inputs(odd.problem, seed=5)
    inputs["q"] *= np.float32(300.0)  # scores up to a thousand: exp overflows unless the maximum is taken out
    inputs["q"][0, 1] *= np.float32(1e-30)  # and scores that are nearly all the same
    agree(odd({name: packed(array) for name, array in inputs.items()}), odd.reference(inputs), tolerance=2e-3)


def test_repeated_runs_agree_to_the_bit(odd: Run) -> None:
    views = {name: packed(array) for name, array in FORWARD.inputs(odd.problem, seed=7).items()}
    first, second = odd(views), odd(views)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


def findings(family: Template, problem: Problem, cache: BuildCache, **changed: Value) -> tuple[list[str], int]:
    """What the traced run says, and the conflicts of its reads from shared memory."""
    config = {**Space(family, problem, SPEC).default(), **changed}
    assert Space(family, problem, SPEC).why_not(config) is None
    source = render(family, problem, config, SPEC)
    op = get_op(family.op)
    images = {name: array.reshape(-1) for name, array in op.inputs(problem, seed=1).items()}
    if family.op == "permute":
        images["x"] = op.inputs(problem, seed=1)["x"].swapaxes(1, 2).reshape(-1)
    artifact = build_emulator(source, cache, traced=True)
    trace = trace_plan(artifact, source.plan, images, op.tensors(problem), blocks=None)
    lines = [line for kernel in trace.kernels for line in kernel.lines if line.operation == "shared load"]
    return [str(found) for found in trace.findings], sum(line.conflicts for line in lines)


@each_family
def test_no_races_and_nothing_out_of_bounds(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=50, T_kv=75, dtype="fp16", layout="bhtd")
    assert findings(family, problem, cache)[0] == []


def test_padding_ends_bank_conflicts(cache: BuildCache) -> None:
    """Lanes that read a column of K meet in one bank where its rows are 64 floats long, in none where they are 65."""
    family = find_template("forward", "warp_per_query")
    problem = FORWARD.problem(B=1, NH=1, T=64, dtype="fp16", layout="bhtd")
    assert findings(family, problem, cache, SMEM_PAD=1)[1] == 0
    assert findings(family, problem, cache, SMEM_PAD=0)[1] > 0


COPIES: tuple[dict[str, Any], ...] = (
    {"B": 2, "NH": 3, "T": 37, "HS": 64, "dtype": "fp16"},
    {"B": 1, "NH": 5, "T": 1, "HS": 13, "dtype": "bf16", "source": "bhtd", "target": "bthd"},
    {"B": 2, "NH": 2, "T": 130, "HS": 40, "dtype": "fp32", "source": "bhtd"},
)


@pytest.mark.parametrize("fields", COPIES, ids=lambda fields: f"HS={fields['HS']}")
def test_permutes(fields: dict[str, Any], cache: BuildCache) -> None:
    problem = get_op("permute").problem(**fields)
    for seed in range(3):
        config = dict(Space(COPY, problem, SPEC).sample(np.random.default_rng(seed)))
        right(COPY, problem, config, cache)


def test_permutes_with_every_parameter(cache: BuildCache) -> None:
    problem = get_op("permute").problem(B=2, NH=3, T=67, HS=24, dtype="fp16")
    for config in covering(Space(COPY, problem, SPEC), seed=3):
        right(COPY, problem, config, cache)


def test_a_permute_stays_in_bounds(cache: BuildCache) -> None:
    problem = get_op("permute").problem(B=1, NH=2, T=37, HS=20, dtype="fp16")
    assert findings(COPY, problem, cache)[0] == []
