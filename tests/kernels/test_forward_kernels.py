"""Every forward family on the emulator: hard shapes, dtypes, layouts, strides, special values, its parameters."""

import mmap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import numpy_dtype
from autotune.core.outcome import Outcome
from autotune.core.plan import Arg, Launch, LaunchPlan, ViewArg, pack_arguments
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.devices.emulated import CpuDevice
from autotune.emulator.building import build_emulator
from autotune.emulator.library import EmulatorLibrary
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import CASE_NAMES, CASES, SPEC, AttentionCase, covering, families, verdict

FORWARD = get_op("forward")
FAMILIES = families("forward")
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])

View = tuple[NDArray[Any], tuple[int, ...], int]
"""A storage, element strides of the tensor in it, and the tensor's offset."""


@each_family
@pytest.mark.parametrize("case", CASES, ids=CASE_NAMES)
def test_every_case_is_right(family: Template, case: AttentionCase, cache: BuildCache) -> None:
    problem = case.problem("forward")
    assert family.why_unsupported(problem, SPEC) is None
    found = verdict(family, problem, dict(Space(family, problem, SPEC).default()), cache)
    assert (found.outcome, found.message) == (Outcome.OK, "")


@each_family
def test_every_parameter_value_is_right(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=2, NH=3, NH_kv=1, T=113, T_kv=203, HS=64, dtype="bf16", causal=True)
    for config in covering(Space(family, problem, SPEC), seed=3):
        found = verdict(family, problem, config, cache)
        assert (found.outcome, found.message) == (Outcome.OK, ""), config


@each_family
def test_head_sizes_up_to_256_have_configurations(family: Template) -> None:
    for HS in range(8, 257, 8):
        for dtype in ("fp16", "bf16", "fp32"):
            problem = FORWARD.problem(HS=HS, dtype=dtype)
            assert family.why_unsupported(problem, SPEC) is None
            assert Space(family, problem, SPEC).size > 100
    assert family.why_unsupported(FORWARD.problem(HS=264), SPEC) is not None
    assert family.why_unsupported(FORWARD.problem(HS=12), SPEC) is not None


class Run:
    """A family's default configuration for a problem, or another one, with tensors placed freely in memory."""

    def __init__(self, family: Template, problem: Problem, cache: BuildCache, config: Config | None = None) -> None:
        self.problem = problem
        self.source: KernelSource = render(family, problem, config or Space(family, problem, SPEC).default(), SPEC)
        self.artifact = build_emulator(self.source, cache)
        self.tensors = {tensor.name: tensor for tensor in FORWARD.tensors(problem)}

    def __call__(self, views: Mapping[str, View]) -> dict[str, NDArray[np.float64]]:
        """`out` and `lse`; a view of `out` says where its elements go, inputs are read through theirs."""
        plan = self.placed(views)
        device = CpuDevice(SPEC, threads=2)
        device.allocate(plan.buffers)
        for buffer in plan.buffers:
            if buffer.name in views:
                device.upload(buffer.name, views[buffer.name][0])
            else:
                device.poison(buffer.name)
        program = device.load(self.artifact, plan)
        device.run(program, plan)
        results = {name: device.download(name) for name in ("out", "lse")}
        program.close()
        device.close()
        return {name: self.seen(name, storage, views).astype(np.float64) for name, storage in results.items()}

    def placed(self, views: Mapping[str, View]) -> LaunchPlan:
        """The launch plan with the tensors where `views` says."""

        def place(arg: Arg) -> Arg:
            if isinstance(arg, ViewArg) and arg.name in views:
                _, strides, offset = views[arg.name]
                return replace(arg, strides=strides, offset=offset)
            return arg

        buffers = tuple(
            replace(buffer, elements=views[buffer.name][0].size) if buffer.name in views else buffer
            for buffer in self.source.plan.buffers
        )
        steps = tuple(
            replace(step, args=tuple(map(place, step.args))) if isinstance(step, Launch) else step
            for step in self.source.plan.steps
        )
        return LaunchPlan(buffers, steps)

    def seen(self, name: str, storage: NDArray[Any], views: Mapping[str, View]) -> NDArray[Any]:
        """A tensor in its logical shape, writable."""
        tensor = self.tensors[name]
        _, strides, offset = views.get(name, (storage, tensor.strides, tensor.offset))
        steps = tuple(stride * storage.itemsize for stride in strides)
        return np.lib.stride_tricks.as_strided(storage[offset:], tensor.shape, steps)

    def reference(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
        """What must come out."""
        return FORWARD.reference(self.problem, dict(inputs))


def place(array: NDArray[Any], strides: tuple[int, ...], offset: int = 0) -> View:
    """The array in a storage of its own, NaN wherever none of its elements lies."""
    elements = offset + 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    storage = np.full(elements, np.nan, array.dtype)
    steps = tuple(stride * array.itemsize for stride in strides)
    np.lib.stride_tricks.as_strided(storage[offset:], array.shape, steps)[...] = array
    return storage, strides, offset


def packed(array: NDArray[Any]) -> View:
    """The array in the usual order of its axes, without gaps."""
    return place(array, tuple(int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)))


def agree(got: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]], tolerance: float = 2e-5) -> None:
    """Equal up to rounding, infinities and NaN at the same places."""
    for name in ("out", "lse"):
        np.testing.assert_allclose(got[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)


def odd_inputs(inputs: Mapping[str, NDArray[Any]]) -> dict[str, View]:
    """Of B=2, NH=2, T=37, T_kv=50, HS=64: an inner stride of 2, rows that start between vectors, a base that is not
    aligned."""
    return {
        "q": place(inputs["q"], (2 * 37 * 128, 37 * 128, 128, 2)),
        "k": place(inputs["k"], (50 * 2 * 67, 67, 2 * 67, 1)),
        "v": place(inputs["v"], (2 * 50 * 64, 50 * 64, 64, 1), offset=1),
    }


def odd_outputs(dtype: type[np.floating[Any]]) -> tuple[View, View]:
    """Of the same problem: rows with gaps between them, and an inner stride of 2."""
    out = np.zeros((2, 2, 37, 64), dtype)
    return place(out, (2 * 37 * 65, 37 * 65, 65, 1), offset=3), place(out, (2 * 37 * 128, 37 * 128, 128, 2))


def stored_once(inputs: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, View]]:
    """One K and V for all heads and batches, and one query for all rows, by strides of 0."""
    whole = {
        name: np.broadcast_to(array[:1, :1, :1] if name == "q" else array[:1, :1], array.shape)
        for name, array in inputs.items()
    }
    return whole, {
        "q": (whole["q"][0, 0, 0].copy(), (0, 0, 0, 1), 0),
        "k": (whole["k"][0, 0].flatten(), (0, 0, 64, 1), 0),
        "v": (whole["v"][0, 0].flatten(), (0, 0, 64, 1), 0),
    }


def far_apart(inputs: Mapping[str, NDArray[Any]], rows: int, offset: int = 0) -> dict[str, View]:
    """Of NH=2, HS=64: room for so many rows from one head to the next, NaN where there are none."""
    gap = 64 * rows
    return {name: place(array, (2 * gap, gap, 64, 1), offset) for name, array in inputs.items()}


def steep(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Scores in the thousands, small ones, and maxima that grow from one tile to the next."""
    q, k = inputs["q"] * inputs["q"].dtype.type(100), inputs["k"].copy()
    q[0, 1] *= q.dtype.type(1e-5)
    k[1] *= np.linspace(0.1, 4, k.shape[2], dtype=k.dtype)[:, None]
    return {**inputs, "q": q, "k": k}


def assert_it_repeats_itself(run: Run) -> None:
    """To the bit."""
    views = {name: packed(array) for name, array in FORWARD.inputs(run.problem, seed=7).items()}
    first, second = run(views), run(views)
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@each_family
def test_odd_strides(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    run = Run(family, problem, cache)
    inputs = FORWARD.inputs(problem, seed=2)
    gaps, apart = odd_outputs(np.float32)
    agree(run({**odd_inputs(inputs), "out": gaps}), run.reference(inputs))
    views = {name: packed(array) for name, array in inputs.items()}
    agree(run({**views, "out": apart}), run.reference(inputs))


@each_family
def test_zero_strides(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp32", causal=True)
    run = Run(family, problem, cache)
    inputs, views = stored_once(FORWARD.inputs(problem, seed=2))
    agree(run(views), run.reference(inputs))


@each_family
@pytest.mark.parametrize("causal", [True, False])
def test_nan_beyond_the_valid_rows_does_not_leak(family: Template, causal: bool, cache: BuildCache) -> None:
    """Rows between one head's last key and the next head's first hold NaN."""
    problem = FORWARD.problem(B=2, NH=2, NH_kv=2, T=37, T_kv=50, HS=64, dtype="fp16", causal=causal)
    run = Run(family, problem, cache)
    inputs = FORWARD.inputs(problem, seed=4)
    agree(run(far_apart(inputs, 80)), run.reference(inputs), tolerance=2e-3)


@each_family
def test_large_scores_are_stable(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=1, NH=2, NH_kv=2, T=70, T_kv=70, HS=64, dtype="fp32", causal=True)
    run = Run(family, problem, cache)
    inputs = FORWARD.inputs(problem, seed=5)
    inputs["q"] *= np.float32(300.0)  # scores up to a thousand: exp overflows unless the maximum is taken out
    inputs["q"][0, 1] *= np.float32(1e-30)  # and scores that are nearly all the same
    agree(run({name: packed(array) for name, array in inputs.items()}), run.reference(inputs), tolerance=2e-3)


@each_family
def test_nan_and_infinity_in_valid_inputs_come_out(family: Template, cache: BuildCache) -> None:
    """A query that sees a NaN key gives NaN, the others are untouched; an infinite value comes out infinite."""
    problem = FORWARD.problem(B=1, NH=2, NH_kv=2, T=100, T_kv=100, HS=64, dtype="fp32", causal=True)
    run = Run(family, problem, cache)
    inputs = FORWARD.inputs(problem, seed=6)
    inputs["k"][0, 0, 40, 7] = np.nan
    inputs["v"][0, 1, 0, 3] = np.inf
    got = run({name: packed(array) for name, array in inputs.items()})
    assert np.isnan(got["out"][0, 0, 40:]).all()
    assert np.isnan(got["lse"][0, 0, 40:]).all()
    assert np.isfinite(got["out"][0, 0, :40]).all()
    assert np.isfinite(got["lse"][0, 0, :40]).all()
    assert (got["out"][0, 1, :, 3] == np.inf).all()
    assert np.isfinite(np.delete(got["out"][0, 1], 3, axis=1)).all()


@each_family
def test_repeated_runs_agree_to_the_bit(family: Template, cache: BuildCache) -> None:
    problem = FORWARD.problem(B=1, NH=2, NH_kv=2, T=100, T_kv=100, HS=64, dtype="fp32", causal=True)
    assert_it_repeats_itself(Run(family, problem, cache))


@each_family
def test_offsets_past_two_to_the_32(family: Template, cache: BuildCache) -> None:
    """Rows 2^26 and heads 2^32 and more elements apart: an offset in 32 bits lands elsewhere.

    The storage is an anonymous mapping of 19 GB of which only the pages in use are ever touched.
    """
    problem = FORWARD.problem(B=1, NH=2, NH_kv=2, T=70, T_kv=70, HS=64, dtype="fp16", causal=True)
    run = Run(family, problem, cache)
    strides = (140 * 2**26, 70 * 2**26, 2**26, 1)
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named from Python 3.12 on
    memory = mmap.mmap(-1, 2 * 140 * 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    far = np.frombuffer(memory, np.float16)
    views = {name: (far, strides, 64 * at) for at, name in enumerate(("q", "k", "v", "out"))}
    inputs = FORWARD.inputs(problem, seed=8)
    for name, array in inputs.items():
        run.seen(name, far, views)[...] = array
    near = {
        buffer.name: np.full(buffer.elements, np.nan, numpy_dtype(buffer.dtype))
        for buffer in run.source.plan.buffers
        if buffer.name not in views
    }
    addresses = {name: array.ctypes.data for name, array in near.items()} | dict.fromkeys(views, far.ctypes.data)
    library = EmulatorLibrary(run.artifact.path)
    for step in run.placed(views).launches:
        packed_arguments = pack_arguments(step.args, addresses)
        assert library.launch(step.kernel, step.grid, step.block, step.smem, packed_arguments, 2) is None
    library.close()
    got = {"out": run.seen("out", far, views), "lse": run.seen("lse", near["lse"], views)}
    agree(got, run.reference(inputs), tolerance=2e-3)
