"""A backward family run on the emulator with its tensors placed freely in memory, NaN around them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.plan import Arg, Launch, LaunchPlan, TensorMapArg, ViewArg
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.emulated import CpuDevice
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.every_family import home

BACKWARD = get_op("backward")
GRADIENTS = ("dq", "dk", "dv")

Arrays = dict[str, NDArray[Any]]
View = tuple[NDArray[Any], tuple[int, ...], int]
"""A storage, element strides of the tensor in it, and the tensor's offset."""


def default(family: Template, problem: Problem, **values: Value) -> dict[str, Value]:
    """The family's configuration for a problem, some values changed."""
    return {**Space(family, problem, home(family)).default(), **values}


def dq_variants(family: Template, problem: Problem) -> list[dict[str, Value]]:
    """For each way of accumulating dQ that the problem allows, the valid configuration most like the default."""
    ways = next((p.values for p in family.parameters if p.name == "DQ_ACCUMULATE"), ())
    space = Space(family, problem, home(family))
    plain, rng = space.default(), np.random.default_rng(0)
    others = [space.sample(rng) for _ in range(2000)] if ways else []
    found = [plain] if not ways else []
    for way in ways:
        configs = [{**plain, "DQ_ACCUMULATE": way}, *(config for config in others if config["DQ_ACCUMULATE"] == way)]
        valid = [config for config in configs[:1] if space.contains(config)] or configs[1:]
        found += sorted(valid, key=lambda config: -len(config.items() & plain.items()))[:1]
    return found


def inputs_of(problem: Problem, seed: int) -> Arrays:
    return BACKWARD.inputs(problem, seed)


def run(
    family: Template,
    problem: Problem,
    config: dict[str, Value],
    inputs: Mapping[str, NDArray[Any]],
    views: Mapping[str, View],
    cache: BuildCache,
) -> Arrays:
    """The gradients, from inputs in the op's own layout except where `views` places a tensor."""
    tensors = {tensor.name: tensor for tensor in BACKWARD.tensors(problem)}
    storages = stored(family, problem, config, inputs, views, cache)
    where = {name: views[name][1:] if name in views else (tensors[name].strides, 0) for name in GRADIENTS}
    return {name: seen(storages[name], tensors[name].shape, *where[name]) for name in GRADIENTS}


def stored(
    family: Template,
    problem: Problem,
    config: dict[str, Value],
    inputs: Mapping[str, NDArray[Any]],
    views: Mapping[str, View],
    cache: BuildCache,
) -> Arrays:
    """The gradients' storages, with what lies between their elements."""
    source = render(family, problem, config, home(family))
    tensors = {tensor.name: tensor for tensor in BACKWARD.tensors(problem)}
    placed = {name: views.get(name) or place(inputs[name], tensors[name].strides) for name in inputs}
    placed |= {name: view for name, view in views.items() if name not in inputs}
    plan = moved(source.plan, placed)
    device = CpuDevice(home(family), threads=2)
    device.allocate(plan.buffers)
    for buffer in plan.buffers:
        if buffer.name in placed and buffer.name in inputs:
            device.upload(buffer.name, placed[buffer.name][0])
        else:
            device.poison(buffer.name)
    program = device.load(build_emulator(source, cache), plan)
    device.run(program, plan)
    storages = {name: device.download(name) for name in GRADIENTS}
    program.close()
    device.close()
    return storages


def moved(plan: LaunchPlan, views: Mapping[str, View]) -> LaunchPlan:
    """The launch plan with the tensors where `views` says."""

    def move(arg: Arg) -> Arg:
        if isinstance(arg, ViewArg) and arg.name in views:
            return replace(arg, strides=views[arg.name][1], offset=views[arg.name][2])
        if isinstance(arg, TensorMapArg) and arg.name in views:
            _, strides, offset = views[arg.name]
            return replace(arg, strides=tuple(strides[axis] * step for axis, step in arg.axes), offset=offset)
        return arg

    buffers = tuple(
        replace(buffer, elements=views[buffer.name][0].size) if buffer.name in views else buffer
        for buffer in plan.buffers
    )
    steps = tuple(
        replace(step, args=tuple(map(move, step.args))) if isinstance(step, Launch) else step for step in plan.steps
    )
    return LaunchPlan(buffers, steps)


def seen(storage: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
    """A tensor in its logical shape."""
    steps = tuple(stride * storage.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)


def place(array: NDArray[Any], strides: tuple[int, ...], offset: int = 0) -> View:
    """The array in a storage of its own, NaN wherever none of its elements lies."""
    elements = offset + 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    storage = np.full(elements, np.nan, array.dtype)
    seen(storage, array.shape, strides, offset)[...] = array
    return storage, strides, offset


def agree(got: Arrays, problem: Problem, inputs: Arrays, tolerance: float = 2e-5) -> None:
    """Equal to the reference up to rounding; NaN fails."""
    expected = BACKWARD.reference(problem, inputs)
    for name in GRADIENTS:
        scale = max(1.0, float(np.abs(expected[name]).max()))
        np.testing.assert_allclose(
            got[name].astype(np.float64), expected[name], rtol=0, atol=tolerance * scale, equal_nan=False, err_msg=name
        )


def odd_views(inputs: Arrays) -> dict[str, View]:
    """Of B=2, NH=2, T=37, T_kv=50, HS=64: an inner stride of 2, rows that start between vectors, a base that is not
    aligned, gradients with gaps."""
    return {
        "q": place(inputs["q"], (2 * 37 * 130, 37 * 130, 130, 2)),
        "k": place(inputs["k"], (50 * 2 * 67, 67, 2 * 67, 1)),
        "v": place(inputs["v"], (2 * 50 * 64, 50 * 64, 64, 1), offset=1),
        "dout": place(inputs["dout"], (2 * 37 * 64, 37 * 64, 1, 37)),
        "dq": place(np.zeros_like(inputs["q"]), (2 * 37 * 65, 37 * 65, 65, 1), offset=3),
        "dk": place(np.zeros_like(inputs["k"]), (2 * 50 * 64, 50 * 64, 1, 50)),
    }


def far_apart(inputs: Arrays, rows: int) -> dict[str, View]:
    """Of NH=2, HS=64: room for so many rows from one head to the next, NaN where there are none."""
    gap = 64 * rows
    return {name: place(inputs[name], (2 * gap, gap, 64, 1)) for name in ("q", "k", "v", "out", "dout")}


def one_dout(inputs: Arrays) -> tuple[Arrays, dict[str, View]]:
    """The gradient of a sum: one number stands for all of dO."""
    one = np.full(1, 0.75, inputs["dout"].dtype)
    return {**inputs, "dout": np.broadcast_to(one, inputs["dout"].shape)}, {"dout": (one, (0, 0, 0, 0), 0)}


def repeats_itself(family: Template, problem: Problem, config: dict[str, Value], cache: BuildCache) -> bool:
    """Whether it claims to; if so, it must."""
    inputs = inputs_of(problem, 7)
    claim = bool(family.front.deterministic({**problem.fields, **config, "device": home(family)}))
    if claim:
        first, second = (run(family, problem, config, inputs, {}, cache) for _ in range(2))
        assert all(first[name].tobytes() == second[name].tobytes() for name in GRADIENTS)
    return claim
