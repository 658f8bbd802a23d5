"""A problem's tensors once more, each with strides of its own, so that one tensor's strides do not do for another.

Rows, heads and batches get gaps that differ from tensor to tensor. Gaps are multiples of 16 bytes, so that what vector
accesses and TMA may do with a tensor, they may do with its twin; or, where a candidate is examined, they are not, or so
wide that offsets exceed 2^31 elements.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from autotune.core.dtypes import DTYPES
from autotune.core.plan import Arg, Buffer, LaunchPlan, PointerArg, Step, TensorMapArg, TensorSpec, ViewArg, Zero

_GAP_BYTES = 16

LARGEST_BYTES = 4 << 30
"""Tensors of more are not placed twice: the memory is needed for the problem itself."""

_MOST_STORAGES = 12
_FAR = 2**32 + 2**21  # elements: what the last index of an axis is multiplied to; from its middle on it is beyond 2^31


@dataclass(frozen=True)
class Placement:
    """How tensors lie the second time, which `words` tells.

    `only`: the number of the one storage that forbids vectors, from 1 on; 0: all do. The n-th does by the `WAYS` from
    `turn` + n on (columns apart, odd rows, an odd start), or by `way` alone. `far`: the second half of each axis but
    the columns lies more than 2^31 elements away, or that of the columns, where no tensor map wants those side by side.
    """

    words: str
    only: int | None = None
    turn: int = 0
    far: Literal["", "rows", "columns"] = ""
    way: Literal["", "columns", "rows", "start"] = ""

    def forbids(self, number: int) -> str:
        """What forbids vectors in the storage of that number."""
        if self.only not in (0, number):
            return ""
        return self.way or WAYS[(self.turn + number) % len(WAYS)]


WAYS = ("columns", "rows", "start")
GAPS = Placement("other strides")
ODD = Placement("strides without vectors", only=0)
MISALIGNED = (Placement("odd rows", only=0, way="rows"), Placement("odd starts", only=0, way="start"))
FAR = (Placement("offsets beyond 2^31", far="rows"), Placement("columns beyond 2^31", far="columns"))


def odd_ones(first: int, step: int, turn: int) -> tuple[Placement, ...]:
    """Each one storage that forbids vectors: of those that problems have at most, every `step`-th."""
    numbers = range(first, _MOST_STORAGES + 1, step)
    return tuple(Placement(f"strides without vectors in storage {n}", only=n, turn=turn) for n in numbers)


@dataclass(frozen=True)
class Twin:
    """The plan over buffers of other names (workspaces excepted), and the tensors in them; `moved`: some have other
    strides."""

    plan: LaunchPlan
    tensors: tuple[TensorSpec, ...]
    moved: bool


def make_twin(plan: LaunchPlan, tensors: tuple[TensorSpec, ...], placement: Placement = GAPS) -> Twin | None:
    """The same launches on other memory; None where that would take too much of it.

    Tensors that a kernel gets as a plain pointer stay as they lie, and so do those whose axes overlap. Those with a
    tensor map always allow vectors.
    """
    owned = [buffer for buffer in plan.buffers if buffer.role != "workspace"]
    if sum(buffer.nbytes for buffer in owned) > LARGEST_BYTES:
        return None
    storages = tuple(dict.fromkeys(tensor.storage for tensor in tensors))
    if (placement.only or 0) > len(storages):
        return None
    fixed = {arg.storage for launch in plan.launches for arg in launch.args if isinstance(arg, PointerArg)}
    fixed |= {name for pair in plan.restores for name in pair}  # they are copied as they lie
    mapped = {arg.storage for launch in plan.launches for arg in launch.args if isinstance(arg, TensorMapArg)}
    viewed = {arg.storage for launch in plan.launches for arg in launch.args if isinstance(arg, ViewArg)} | mapped
    placed: list[TensorSpec] = []
    for number, storage in enumerate(storages, 1):
        members = tuple(tensor for tensor in tensors if tensor.storage == storage)
        movable = storage in viewed - fixed and all(map(_nested, members))
        forbidden = "" if storage in mapped else placement.forbids(number)
        far = "rows" if placement.far and storage in mapped else placement.far
        placed += _apart(members, number, forbidden, far) if movable else members
    names = {buffer.name: f"{buffer.name} ({placement.words})" for buffer in owned}
    renamed = {tensor.name: replace(tensor, storage=names[tensor.storage]) for tensor in placed}
    buffers = tuple(
        buffer if buffer.role == "workspace" else _buffer(buffer, names[buffer.name], tuple(renamed.values()))
        for buffer in plan.buffers
    )
    steps = tuple(_step(step, renamed, names) for step in plan.steps)
    moved = any((renamed[t.name].strides, renamed[t.name].offset) != (t.strides, t.offset) for t in tensors)
    restores = tuple((names[buffer], names[before]) for buffer, before in plan.restores)
    return Twin(LaunchPlan(buffers, steps, plan.arithmetic, restores), tuple(renamed[t.name] for t in tensors), moved)


def _nested(tensor: TensorSpec) -> bool:
    """Whether each axis fits between two indices of the next."""
    axes = sorted((stride, size) for stride, size in zip(tensor.strides, tensor.shape, strict=True) if size > 1)
    nested = all(stride * size <= wider for (stride, size), (wider, _) in pairwise(axes))
    return nested and min(tensor.strides, default=0) > 0


def _apart(members: tuple[TensorSpec, ...], number: int, forbidden: str, far: str) -> list[TensorSpec]:
    """The tensors of one storage, every stride but the smallest larger by `number` gaps, or what is `forbidden` odd."""
    gap = 1 if forbidden == "rows" else max(1, _GAP_BYTES // DTYPES[members[0].dtype].size)
    unit = gap * (2 * number - 1 if forbidden == "rows" else number)
    levels = sorted({stride for tensor in members for stride in tensor.strides})
    moved = {levels[0]: levels[0] * (2 if forbidden == "columns" else 1)}
    for inner, outer in pairwise(levels):
        moved[outer] = math.ceil(outer / inner) * moved[inner] + unit
        if outer % gap == 0:  # as TMA wants it of rows
            moved[outer] += -moved[outer] % gap
    if far:
        moved = _far_apart(members, levels, unit, columns=far == "columns")
    start = 1 if forbidden == "start" else 0
    return [
        replace(
            tensor,
            strides=tuple(moved[stride] for stride in tensor.strides),
            offset=_offset(tensor.offset, moved) + start,
        )
        for tensor in members
    ]


def _far_apart(members: tuple[TensorSpec, ...], levels: list[int], unit: int, *, columns: bool) -> dict[int, int]:
    """Strides by the old ones: the last index of each axis but the columns lies beyond `_FAR`, or that of the columns.

    The axis with the most indices is the innermost, so that a tensor takes no more addresses than it must: strides of
    tensor maps are below 2^40 bytes. Columns that are apart are outermost, so that few pages are written.
    """
    last: dict[int, int] = {}
    for tensor in members:
        for stride, size in zip(tensor.strides, tensor.shape, strict=True):
            last[stride] = max(size - 1, last.get(stride, 0))
    held = {inner: math.ceil(outer / inner) for inner, outer in pairwise(levels)} | {levels[-1]: last[levels[-1]] + 1}
    moved: dict[int, int] = {}
    extent = 1
    rows = sorted(levels[1:], key=lambda level: -held[level])
    for level in [*rows, levels[0]] if columns else [levels[0], *rows]:
        if (level == levels[0]) == columns:
            extent = math.ceil(max(extent, _FAR / max(1, last[level])) / unit) * unit
        moved[level] = extent
        extent *= held[level]
    return moved


def _offset(offset: int, moved: Mapping[int, int]) -> int:
    """An offset is so many of the widest stride, so many of the next, and so on."""
    there = 0
    for stride in sorted(moved, reverse=True):  # the old ones
        steps, offset = divmod(offset, stride)
        there += steps * moved[stride]
    return there + offset


def _buffer(buffer: Buffer, name: str, tensors: tuple[TensorSpec, ...]) -> Buffer:
    extents = [tensor.extent for tensor in tensors if tensor.storage == name]
    return replace(buffer, name=name, elements=max(extents, default=buffer.elements))


def _step(step: Step, tensors: Mapping[str, TensorSpec], names: Mapping[str, str]) -> Step:
    if isinstance(step, Zero):
        return Zero(names.get(step.buffer, step.buffer))
    return replace(step, args=tuple(_argument(arg, tensors) for arg in step.args))


def _argument(arg: Arg, tensors: Mapping[str, TensorSpec]) -> Arg:
    tensor = tensors.get(arg.name)
    if isinstance(arg, PointerArg | ViewArg | TensorMapArg) and arg.role != "workspace" and tensor is not None:
        if isinstance(arg, ViewArg):
            return replace(arg, storage=tensor.storage, offset=tensor.offset, strides=tensor.strides)
        if isinstance(arg, TensorMapArg):
            strides = tuple(tensor.strides[axis] * step for axis, step in arg.axes)
            return replace(arg, storage=tensor.storage, offset=tensor.offset, strides=strides)
        return replace(arg, storage=tensor.storage, offset=tensor.offset)
    return arg
