"""What the kernels of `templates/verification/comparison.cu` are told: where units lie, what is expected of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.candidate import make_candidate
from autotune.core.dtypes import DTYPES, numpy_dtype
from autotune.core.measurement import OutputCheck
from autotune.core.plan import Launch, LaunchPlan, TensorSpec
from autotune.core.problem import Problem
from autotune.core.resources import resource_root
from autotune.devices.comparison import located
from autotune.families.includes import collect_includes
from autotune.families.source import KernelSource, read_source
from autotune.ops.expected import Expectation, tensor_view
from autotune.ops.op import Op, contiguous

THREADS = 256
"""Of each block of those kernels."""

BETWEEN, CHANGES, SUM = "look_between", "look_for_changes", "sum_up"
COMPARED: Mapping[str, str] = {
    name: f"compare_{name}" for name, dtype in DTYPES.items() if dtype.size > 1 and not dtype.is_whole
}
"""The kernel that compares, by element type."""

RECORD_WORDS, UNIT_WORDS = 6, 2
"""Of 8 bytes: what `Record` and `Unit` take."""

_AXES = 4

_LARGEST = 2**31  # elements of a unit


_Place = tuple[int, tuple[int, ...], tuple[int, ...]]
"""In elements: how far into the storage a unit begins, its shape and strides."""


def comparison_source() -> KernelSource:
    """The kernels, for a device to build."""
    root = resource_root("templates")
    body = read_source(root / "verification" / "comparison.cu")
    includes = collect_includes(body, (root,), "comparison.cu")
    kernels = (*COMPARED.values(), BETWEEN, CHANGES, SUM)
    plan = LaunchPlan((), tuple(Launch(kernel, (1, 1, 1), (THREADS, 1, 1), 0, ()) for kernel in kernels))
    return KernelSource(make_candidate("comparison", "", {}), Problem("comparison", ()), "", body, includes, plan)


@dataclass(frozen=True)
class Places:
    """Where the units of an output lie in its storage, and which references and bounds are theirs.

    `offsets` of the units in elements; all have the same `shape` and `strides`. `bounds` is the shape of a unit's.
    """

    tensor: TensorSpec
    offsets: tuple[int, ...]
    sources: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bounds: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Of a unit."""
        return math.prod(self.shape)

    @property
    def bounds_apart(self) -> int:
        """Bounds of a unit."""
        return math.prod(self.bounds)

    @property
    def total(self) -> int:
        """Elements of all units, as they are compared: one that several have counts for each."""
        return len(self.offsets) * self.elements

    @property
    def axes(self) -> tuple[int, ...]:
        """Extents, strides, and strides of the bounds: of four axes each, as `Units` of comparison.cu has them."""
        bounds = _four(self.bounds, 1)
        along = (0 if n == 1 else stride for n, stride in zip(bounds, contiguous(bounds), strict=True))
        return (*_four(self.shape, 1), *_four(self.strides, 0), *along)

    def table(self) -> NDArray[np.int64]:
        """A `Unit` of comparison.cu for each."""
        return np.array([self.offsets, self.sources], np.int64).T.reshape(-1)

    def where(self, op: Op, problem: Problem, index: int) -> tuple[int, ...] | None:
        """In the whole output, where the element of this number lies; as `compare_all` says it."""
        unit, element = divmod(index, self.elements)
        whole, name = _whole(self.tensor), self.tensor.name
        piece = op.unit(problem, {name: whole}, unit)[name]
        at = tuple(int(axis) for axis in np.unravel_index(element, self.shape))
        return located(OutputCheck(name, 0.0, 0.0, 0, at), whole, piece).at


def places_of(op: Op, expected: Expectation, tensor: TensorSpec, arithmetic: str) -> Places | None:
    """None where the kernels do not take it: another element type, units of several shapes, or that are no views."""
    name = tensor.name
    if tensor.dtype not in COMPARED or not all(name in unit.reference for unit in expected.units):
        return None
    shape = expected.units[0].reference[name].shape
    if len(shape) > _AXES or not 0 < math.prod(shape) < _LARGEST:
        return None
    if any(unit.reference[name].shape != shape for unit in expected.units):
        return None
    bounds = np.broadcast_shapes(*(np.shape(unit.bounds[arithmetic][name]) for unit in expected.units))
    if np.broadcast_shapes(bounds, shape) != shape:
        return None
    whole = _whole(tensor)
    units = range(len(expected.sources))
    found = [_place(tensor, whole, op.unit(expected.problem, {name: whole}, index)[name]) for index in units]
    offsets = [place[0] for place in found if place is not None]
    ways = {place and place[1:] for place in found}
    first = found[0]
    if first is None or len(ways) != 1 or first[1] != shape:
        return None
    return Places(tensor, tuple(offsets), expected.sources, shape, first[2], bounds)


def references_of(expected: Expectation, name: str) -> NDArray[np.float64]:
    """Of each different unit, one after the other."""
    return np.concatenate([np.asarray(unit.reference[name], np.float64).reshape(-1) for unit in expected.units])


def bounds_of(expected: Expectation, places: Places, arithmetic: str) -> NDArray[np.float64]:
    """Likewise, in the shape that they have for all."""
    given = [np.asarray(unit.bounds[arithmetic][places.tensor.name], np.float64) for unit in expected.units]
    return np.concatenate([np.broadcast_to(bound, places.bounds).reshape(-1) for bound in given])


def _whole(tensor: TensorSpec) -> NDArray[Any]:
    """The tensor over a storage of its own, without content."""
    return tensor_view(np.empty(tensor.extent, numpy_dtype(tensor.dtype)), tensor)


def _place(tensor: TensorSpec, whole: NDArray[Any], piece: NDArray[Any]) -> _Place | None:
    """Where a piece of an output lies; None if it is no view of the whole."""
    size = whole.itemsize
    away = piece.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    steps = (away, *piece.strides)
    last = away + sum((n - 1) * stride for n, stride in zip(piece.shape, piece.strides, strict=True))
    if piece.dtype != whole.dtype or any(step % size or step < 0 for step in steps):
        return None
    if last // size >= tensor.extent - tensor.offset:
        return None
    return tensor.offset + away // size, piece.shape, tuple(stride // size for stride in piece.strides)


def _four(values: Sequence[int], before: int) -> tuple[int, ...]:
    return (*(before,) * (_AXES - len(values)), *values)
