"""A problem's tensors once more, each with strides of its own, so that one tensor's strides do not do for another.

Rows, heads and batches get gaps that differ from tensor to tensor. Gaps are multiples of 16 bytes: what vector accesses
and TMA may do with a tensor, they may do with its twin.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from autotune.core.dtypes import DTYPES
from autotune.core.plan import Arg, Buffer, LaunchPlan, PointerArg, Step, TensorMapArg, TensorSpec, ViewArg, Zero

_GAP_BYTES = 16

LARGEST_BYTES = 4 << 30
"""Tensors of more are not placed twice: the memory is needed for the problem itself."""


@dataclass(frozen=True)
class Twin:
    """The plan over buffers of other names (workspaces excepted), and the tensors in them; `moved`: some have other
    strides."""

    plan: LaunchPlan
    tensors: tuple[TensorSpec, ...]
    moved: bool


def make_twin(plan: LaunchPlan, tensors: tuple[TensorSpec, ...]) -> Twin | None:
    """The same launches on other memory; None where that would take too much of it.

    Tensors that a kernel gets as a plain pointer stay as they lie, and so do those whose axes overlap.
    """
    owned = [buffer for buffer in plan.buffers if buffer.role != "workspace"]
    if sum(buffer.nbytes for buffer in owned) > LARGEST_BYTES:
        return None
    fixed = {arg.storage for launch in plan.launches for arg in launch.args if isinstance(arg, PointerArg)}
    fixed |= {name for pair in plan.restores for name in pair}  # they are copied as they lie
    viewed = {arg.storage for launch in plan.launches for arg in launch.args if isinstance(arg, ViewArg | TensorMapArg)}
    placed: list[TensorSpec] = []
    for number, storage in enumerate(dict.fromkeys(tensor.storage for tensor in tensors), 1):
        members = tuple(tensor for tensor in tensors if tensor.storage == storage)
        movable = storage in viewed - fixed and all(map(_nested, members))
        placed += _apart(members, number) if movable else members
    renamed = {tensor.name: replace(tensor, storage=_other(tensor.storage)) for tensor in placed}
    buffers = tuple(
        buffer if buffer.role == "workspace" else _buffer(buffer, tuple(renamed.values())) for buffer in plan.buffers
    )
    names = {buffer.name: _other(buffer.name) for buffer in owned}
    steps = tuple(_step(step, renamed, names) for step in plan.steps)
    moved = any(renamed[tensor.name].strides != tensor.strides for tensor in tensors)
    restores = tuple((names[buffer], names[before]) for buffer, before in plan.restores)
    return Twin(LaunchPlan(buffers, steps, plan.arithmetic, restores), tuple(renamed[t.name] for t in tensors), moved)


def _other(storage: str) -> str:
    return f"{storage} (other strides)"


def _nested(tensor: TensorSpec) -> bool:
    """Whether each axis fits between two indices of the next."""
    axes = sorted((stride, size) for stride, size in zip(tensor.strides, tensor.shape, strict=True) if size > 1)
    nested = all(stride * size <= wider for (stride, size), (wider, _) in pairwise(axes))
    return nested and min(tensor.strides, default=0) > 0


def _apart(members: tuple[TensorSpec, ...], number: int) -> list[TensorSpec]:
    """The tensors of one storage, every stride but the smallest larger by `number` gaps."""
    unit = max(1, _GAP_BYTES // DTYPES[members[0].dtype].size) * number
    levels = sorted({stride for tensor in members for stride in tensor.strides})
    moved = {levels[0]: levels[0]}
    for inner, outer in pairwise(levels):
        moved[outer] = math.ceil(outer / inner) * moved[inner] + unit
    return [
        replace(tensor, strides=tuple(moved[stride] for stride in tensor.strides), offset=_offset(tensor.offset, moved))
        for tensor in members
    ]


def _offset(offset: int, moved: Mapping[int, int]) -> int:
    """An offset is so many of the widest stride, so many of the next, and so on."""
    there = 0
    for stride in sorted(moved, reverse=True):
        steps, offset = divmod(offset, stride)
        there += steps * moved[stride]
    return there + offset


def _buffer(buffer: Buffer, tensors: tuple[TensorSpec, ...]) -> Buffer:
    extents = [tensor.extent for tensor in tensors if tensor.storage == _other(buffer.name)]
    return replace(buffer, name=_other(buffer.name), elements=max(extents, default=buffer.elements))


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
