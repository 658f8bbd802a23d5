"""Every family as a callable on tensors that begin at any element, each with strides of its own, results too."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autotune
from autotune.answers.kernel import Kernel
from autotune.core.dtypes import numpy_dtype
from autotune.core.errors import LaunchError
from autotune.core.plan import PointerArg, TensorMapArg
from autotune.families.template import Template
from autotune.ops.registry import get_op
from tests.driver_double import EmulatedDriver, OnGpu, emulated
from tests.every_family import each_family_of, home, supported

FIELDS: dict[str, Any] = {
    "B": 2, "NH": 2, "NH_kv": 1, "T": 33, "T_kv": 40, "HS": 64, "M": 33, "N": 40, "K": 64, "dtype": "fp16",
}  # fmt: skip
WIDEST = 16  # bytes of a vector, and what TMA asks for


def named(kernel: Kernel, kind: type) -> set[str]:
    """Tensors that kernels get as arguments of a kind."""
    return {a.name for launch in kernel.best.plan.launches for a in launch.args if isinstance(a, kind)}


def room(shape: tuple[int, ...], dtype: np.dtype[Any], start: int, strides: tuple[int, ...]) -> NDArray[Any]:
    """An array whose first element is the `start`-th of memory that begins at a multiple of 256 bytes."""
    extent = start + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    memory = np.full(extent + 256, np.nan, dtype)
    first = -memory.ctypes.data % 256 // dtype.itemsize + start
    return np.lib.stride_tricks.as_strided(memory[first:], shape, [n * dtype.itemsize for n in strides])


def strides_of(shape: tuple[int, ...], gaps: list[int], order: list[int]) -> tuple[int, ...]:
    """The last axis' elements side by side, the others outwards in `order`, with so many elements after each row."""
    found, extent = [1] * len(shape), shape[-1]
    for axis, gap in zip(order, gaps, strict=True):
        found[axis] = extent + gap
        extent = found[axis] * shape[axis]
    return tuple(found)


def places(kernel: Kernel, shapes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is said of a case, and a start and strides by tensor. Plain pointers' strides are those of the problem."""
    plain, size = named(kernel, PointerArg), numpy_dtype(kernel.best.problem.dtype).itemsize
    own = {tensor.name: tensor.strides for tensor in kernel.fit(shapes).tensors.values()}
    random = np.random.default_rng(7)

    def case(names: set[str], start: int, gap: int, mixed: bool) -> dict[str, Any]:
        found = {}
        for name, shape in shapes.items():
            odd = name in names
            order = [*range(len(shape) - 2, -1, -1)]
            if mixed:
                random.shuffle(order)
            gaps = [(gap if odd else WIDEST // size) * (1 + int(random.integers(3))) for _ in order]
            strides = own[name] if name in plain else strides_of(shape, gaps, order)
            found[name] = (start if odd else 0, strides)
        return found

    everything = {*shapes}
    yield "rows of whole vectors, from element 3 on", case(everything, 3, WIDEST // size, False)
    yield "all aligned, any order of axes", case(set(), 0, 0, True)
    yield "rows at odd elements", case(everything, 0, 1, True)
    for name in shapes:
        yield f"{name} alone from element 1 on", case({name}, 1, WIDEST // size, True)
    for start in (2, 4, 8):
        yield f"some from element {start} on", case({n for n in shapes if random.integers(2)}, start, 3, True)


def tma_takes(kernel: Kernel, where: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> bool:
    size = numpy_dtype(kernel.best.problem.dtype).itemsize
    return not any(
        step * size % WIDEST
        for name in named(kernel, TensorMapArg) & shapes.keys()
        for step in (where[name][0], *(s for n, s in zip(shapes[name], where[name][1], strict=True) if n > 1 and s > 1))
    )


@each_family_of()
def test_every_family_on_tensors_anywhere(family: Template) -> None:
    """Right, or refused where TMA copies tensors that it does not take."""
    problem = supported(family, FIELDS, home(family))
    op = get_op(problem.op)
    driver = EmulatedDriver()
    fields: dict[str, Any] = {**problem.fields}
    kernel = autotune.kernel(op.name, device="cpu", db="/nonexistent/none.db", template=family.name, **fields)
    kernel = emulated(kernel, driver)
    inputs = op.inputs(problem, 1)
    expected, rough = op.reference(problem, inputs), op.low_precision(problem, inputs)
    dtypes = {tensor.name: numpy_dtype(tensor.dtype) for tensor in op.tensors(problem)}
    shapes = {name: array.shape for name, array in {**inputs, **expected}.items()}
    calls = 0
    for said, where in places(kernel, shapes):
        given = {name: room(shape, dtypes[name], *where[name]) for name, shape in shapes.items()}
        for name, array in inputs.items():
            given[name][...] = array
        arrays = {name: OnGpu(array) for name, array in given.items()}
        if not tma_takes(kernel, where, shapes):
            with pytest.raises(LaunchError, match="TMA cannot copy this tensor"):
                kernel(**arrays)
            continue
        kernel(**arrays)
        calls += 1
        for name, right in expected.items():
            allowed = 3 * np.abs(rough[name] - right).max() + 1e-4
            np.testing.assert_allclose(given[name].astype(np.float64), right, atol=allowed, rtol=0, err_msg=said)
        for name in inputs.keys() - expected.keys():
            np.testing.assert_array_equal(given[name], inputs[name], err_msg=said)
    assert calls >= 1
