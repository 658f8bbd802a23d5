"""Head sizes that are no tile's width: what lies beyond a row is neither read nor written."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.arithmetic import FULL
from autotune.core.plan import LaunchPlan, TensorMapArg
from autotune.core.problem import Problem
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.every_family import families_of, fitted, home, name_of
from tests.kernels import backward_runs
from tests.kernels.forward_runs import FORWARD, Run, View, agree, place

SIZES = (4, 33, 36, 72, 75, 100, 200, 250)
TOLERANCE = {"fp32": 2e-5, "fp16": 3e-3, "bf16": 2.5e-2}
GAPS = ((24, 0), (25, 1), (25, 0))
"""Elements from a row's end to the next one's begin, and before the first: with them the accesses are allowed that HS
allows, or none wider than an element. The third is for odd sizes: rows begin at pairs, the last is half one."""


def cases(op: str) -> Iterator[Any]:
    """Each family with each size, in fp32 with every other one, starts and dtypes taking turns.

    With one size alone where tiles have no fixed width, or TMA fills them up.
    """
    for family in families_of(op):
        by_width = family.front.tensor_cores and family.front.arch != "sm_90a"
        sizes = SIZES if family.front.arithmetic == FULL else SIZES[op == "backward" :: 2]
        for turn, HS in enumerate(sizes if by_width else SIZES[3:4]):
            fields: dict[str, Any] = {"B": 1, "NH": 2, "NH_kv": 1, "T": 37, "T_kv": 50, "HS": HS}
            fields |= {"dtype": ("fp16", "bf16")[turn % 2], "causal": turn % 3 > 0}
            problem = fitted(family, fields, home(family), turn=1)
            if problem is not None and problem["HS"] == HS:
                yield pytest.param(family, problem, turn, id=f"{name_of(family)}-{HS}")


def apart(array: NDArray[Any], gap: int, offset: int) -> View:
    """A (B, NH, T, HS) tensor with NaN between its rows."""
    _, heads, length, HS = array.shape
    pitch = HS + gap
    return place(array, (heads * length * pitch, length * pitch, pitch, 1), offset)


def assert_untouched(storage: NDArray[Any], view: View, shape: tuple[int, ...]) -> None:
    """NaN still lies everywhere between the elements."""
    between = np.ones(storage.size, bool)
    np.lib.stride_tricks.as_strided(between[view[2] :], shape, view[1])[...] = False
    assert between.sum() >= shape[2] - 1
    assert np.isnan(storage[between].astype(np.float64)).all()


def layouts(plan: LaunchPlan, HS: int) -> tuple[tuple[int, int], ...]:
    """Those that the kernels read: TMA copies whole vectors only."""
    maps = any(isinstance(arg, TensorMapArg) for launch in plan.launches for arg in launch.args)
    return GAPS[:1] if maps else GAPS[: 2 + HS % 2]


@pytest.mark.parametrize(("family", "problem", "turn"), list(cases("forward")))
def test_forward(family: Template, problem: Problem, turn: int, cache: BuildCache) -> None:
    starts = Space(family, problem, home(family)).starts()
    run = Run(family, problem, cache, starts[turn % len(starts)])
    inputs = FORWARD.inputs(problem, seed=turn)
    for gap, offset in layouts(run.source.plan, problem.integer("HS")):
        views = {name: apart(array, gap, offset) for name, array in inputs.items()}
        views["out"] = apart(np.zeros_like(inputs["q"]), gap, offset)
        stored = run.stored(views)
        got = {name: run.seen(name, storage, views).astype(np.float64) for name, storage in stored.items()}
        agree(got, run.reference(inputs), TOLERANCE[problem.dtype])
        assert_untouched(stored["out"], views["out"], inputs["q"].shape)


@pytest.mark.parametrize(("family", "problem", "turn"), list(cases("backward")))
def test_backward(family: Template, problem: Problem, turn: int, cache: BuildCache) -> None:
    starts = Space(family, problem, home(family)).starts()
    config = starts[turn % len(starts)]
    inputs = get_op("backward").inputs(problem, seed=turn)
    results = {"dq": inputs["q"], "dk": inputs["k"], "dv": inputs["v"]}
    for gap, offset in layouts(render(family, problem, config, home(family)).plan, problem.integer("HS")):
        views = {name: apart(array, gap, offset) for name, array in inputs.items() if array.ndim == 4}
        views |= {name: apart(np.zeros_like(like), gap, offset) for name, like in results.items()}
        stored = backward_runs.stored(family, problem, config, inputs, views, cache)
        got = {name: backward_runs.seen(stored[name], like.shape, *views[name][1:]) for name, like in results.items()}
        backward_runs.agree(got, problem, inputs, TOLERANCE[problem.dtype])
        for name, like in results.items():
            assert_untouched(stored[name], views[name], like.shape)


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_every_size_is_taken_by_families_on_tensor_cores(op: str) -> None:
    """In 16 bits by one for what came before Hopper and, at multiples of 8, one for Hopper; in fp32 by one."""
    for HS in range(1, 257):
        for dtype, count in (("fp16", 2 if HS % 8 == 0 else 1), ("fp32", 1)):
            problem = get_op(op).problem(HS=HS, dtype=dtype)
            able = [f for f in families_of(op) if f.front.tensor_cores and not f.why_unsupported(problem, home(f))]
            assert len(able) >= count, (HS, dtype)
            if HS in (1, 75, 256):
                assert all(Space(f, problem, home(f)).size > 10 for f in able), (HS, dtype)
