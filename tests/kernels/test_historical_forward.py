"""The families of the ladder's forward pass, and of `permute`: NaN in valid keys, races, bank conflicts."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.ops.registry import get_op
from autotune.trace.tracing import trace_plan
from tests.kernels.attention_cases import SPEC
from tests.kernels.forward_runs import Run, packed

FORWARD = get_op("forward")
FAMILIES = tuple(find_template("forward", name) for name in ("naive", "minimal_flash", "warp_per_query"))
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
COPY = find_template("permute", "copy")


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.name)
def odd(request: pytest.FixtureRequest, cache: BuildCache) -> Run:
    """More keys than queries, in tiles that are cut."""
    problem = FORWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    return Run(request.param, problem, cache)


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


def test_a_permute_stays_in_bounds(cache: BuildCache) -> None:
    problem = get_op("permute").problem(B=1, NH=2, T=37, HS=20, dtype="fp16")
    assert findings(COPY, problem, cache)[0] == []
