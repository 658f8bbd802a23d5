"""Every forward family that shares out keys among blocks (`SPLIT`): parts of a row that have keys and no weight."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.every_family import dtypes_of, families_of, home
from tests.kernels.forward_runs import Run, agree, packed

FORWARD = get_op("forward")
FAMILIES = [family for family in families_of("forward") if "SPLIT" in family.defaults]
LARGE = {"fp16": 3e4, "bf16": 1e30, "fp32": 1e30}
"""Of queries and keys, whose scores a float does not hold, or not to a weight."""


def test_there_are_such_families() -> None:
    assert {family.name for family in FAMILIES} >= {"flash_mma", "flash_wgmma"}


@pytest.fixture(
    params=[pytest.param((f, d), id=f"{f.name}-{d}") for f in FAMILIES for d in dtypes_of(f, home(f))], scope="module"
)
def runs(request: pytest.FixtureRequest, cache: BuildCache) -> list[Run]:
    """Configurations that split, for 70 queries of two heads that share 390 keys; the last behind a causal mask."""
    family, dtype = request.param
    problem = FORWARD.problem(B=2, NH=2, NH_kv=1, T=70, T_kv=390, HS=64, dtype=dtype, causal=False)
    masked = problem.replace(causal=True)
    chosen = [(problem, config) for config in islice(splitting(family, problem), 2)]
    chosen += [(masked, config) for config in islice(splitting(family, masked), 1)]
    return [Run(family, one, cache, config) for one, config in chosen]


def splitting(family: Template, problem: Problem) -> Iterator[Config]:
    """Random ones, each with another number of splits than the one before."""
    space, rng, before = Space(family, problem, home(family)), np.random.default_rng(5), 1
    while True:
        config = space.sample(rng)
        if config["SPLIT"] not in (1, before):
            before = int(config["SPLIT"])
            yield config


def compared(run: Run, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """What came out, which is the reference up to rounding."""
    got = run({name: packed(array) for name, array in inputs.items()})
    with np.errstate(over="ignore"):
        right = {name: array.astype(np.float32) for name, array in run.reference(inputs).items()}
    agree(got, right, tolerance=2e-2 if run.problem.dtype == "bf16" else 2e-3)
    return got


def test_scores_beyond_what_a_float_holds_are_computed_again(runs: list[Run]) -> None:
    """In fp32 all scores are -inf, in every part, or too large for their differences to show: key 130 has all the
    weight, and keys that give no weight are not taken for no keys."""
    for run in runs:
        inputs = FORWARD.inputs(run.problem, seed=3)
        large = LARGE[run.problem.dtype]
        inputs["q"][...] = -large
        inputs["k"][...] = 2 * large
        inputs["k"][:, :, 130] = large
        got = compared(run, inputs)
        value = np.broadcast_to(inputs["v"][:, :, 130:131], got["out"].shape)
        np.testing.assert_array_equal(got["out"], value.astype(np.float64))


def test_parts_whose_keys_have_no_weight_leave_the_others_theirs(runs: list[Run]) -> None:
    """Infinite keys; in the second batch there are no others, and rows are those without a key."""
    for run in runs:
        inputs = FORWARD.inputs(run.problem, seed=4)
        inputs["q"][...] = np.abs(inputs["q"]) + inputs["q"].dtype.type(1)
        inputs["k"][0, :, 64:250] = -np.inf
        inputs["k"][1] = -np.inf
        got = compared(run, inputs)
        assert (got["out"][1] == 0).all()
        assert (got["lse"][1] == -np.inf).all()
