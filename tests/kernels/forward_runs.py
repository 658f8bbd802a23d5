"""A forward family run on the emulator with its tensors placed freely in memory, NaN around them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.plan import Arg, Launch, LaunchPlan, TensorMapArg, ViewArg
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.devices.emulated import CpuDevice
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.every_family import home

FORWARD = get_op("forward")

Arrays = dict[str, NDArray[Any]]
View = tuple[NDArray[Any], tuple[int, ...], int]
"""A storage, element strides of the tensor in it, and the tensor's offset."""


class Run:
    """A family's default configuration for a problem, or another one, with tensors placed freely in memory."""

    def __init__(self, family: Template, problem: Problem, cache: BuildCache, config: Config | None = None) -> None:
        self.family, self.problem = family, problem
        spec = home(family)
        self.source: KernelSource = render(family, problem, config or Space(family, problem, spec).default(), spec)
        self.artifact = build_emulator(self.source, cache)
        self.tensors = {tensor.name: tensor for tensor in FORWARD.tensors(problem)}

    def __call__(self, views: Mapping[str, View]) -> dict[str, NDArray[np.float64]]:
        """`out` and `lse`; a view of `out` says where its elements go, inputs are read through theirs."""
        results = self.stored(views)
        return {name: self.seen(name, storage, views).astype(np.float64) for name, storage in results.items()}

    def stored(self, views: Mapping[str, View]) -> Arrays:
        """The storages of `out` and `lse`, with what lies between their elements."""
        plan = self.placed(views)
        device = CpuDevice(home(self.family), threads=2)
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
        return results

    def placed(self, views: Mapping[str, View]) -> LaunchPlan:
        """The launch plan with the tensors where `views` says."""

        def place(arg: Arg) -> Arg:
            if isinstance(arg, ViewArg) and arg.name in views:
                _, strides, offset = views[arg.name]
                return replace(arg, strides=strides, offset=offset)
            if isinstance(arg, TensorMapArg) and arg.name in views:
                _, strides, offset = views[arg.name]
                return replace(arg, strides=tuple(strides[axis] * step for axis, step in arg.axes), offset=offset)
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


def odd_outputs(dtype: DTypeLike) -> tuple[View, View]:
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
