"""The launch plan: which buffers a kernel family needs and which steps run in which order.

A plan is plain data. Devices allocate the buffers, then run the steps; exports print them as C++.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from autotune.core.arithmetic import FULL
from autotune.core.dtypes import DTYPES
from autotune.core.errors import LaunchError

Role = Literal["input", "output", "workspace"]

BEFORE = " (before)"
"""Behind the name of a tensor that kernels change in place: the tensor that holds what it begins with."""

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Buffer:
    """One allocation: `elements` of `dtype`. Several tensors may live in one (packed QKV)."""

    name: str
    dtype: str
    elements: int
    role: Role

    @property
    def nbytes(self) -> int:
        return self.elements * DTYPES[self.dtype].size


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of an op: logical `shape`, element `strides` and `offset` within the buffer `storage`."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    role: Role
    storage: str
    offset: int = 0

    @property
    def extent(self) -> int:
        """Elements that the storage needs to hold this tensor: the last one addressed, plus one."""
        return self.offset + 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class PointerArg:
    """A plain pointer to a tensor's first element."""

    name: str
    storage: str
    offset: int
    dtype: str
    role: Role


@dataclass(frozen=True)
class ViewArg:
    """`View<T, N>` by value: pointer, then N 64-bit element strides."""

    name: str
    storage: str
    offset: int
    dtype: str
    strides: tuple[int, ...]
    role: Role


@dataclass(frozen=True)
class ScalarArg:
    """An `int`, `long long`, `float` or `double` by value; `name` is its expression in the front matter."""

    name: str
    ctype: Literal["int", "long long", "float", "double"]
    value: int | float


@dataclass(frozen=True)
class TensorMapArg:
    """`const __grid_constant__ TensorMap` by value: the tensor `name` and the box of it that one copy of TMA moves.

    Dimensions begin with the contiguous one; `extents`, `strides`, `box` and `offset` are in elements; `swizzle` is
    128, 64 or 32 bytes, 0: none. `axes` tells for each dimension the tensor's axis, and of how many of that axis'
    strides its own consists.

    `anywhere`: rows, along the first dimension, may begin at any element; only those of the second dimension are
    multiples of 16 bytes apart. A kernel gets a map for each element of 16 bytes that a row may begin at, `TensorMaps`.
    Its dimensions are these two, the first as much longer, and in place of all others steps of 16 bytes, 2^20 of them,
    and so many steps at once.
    """

    name: str
    storage: str
    offset: int
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    role: Role
    axes: tuple[tuple[int, int], ...] = ()
    anywhere: bool = False

    @property
    def nbytes(self) -> int:
        """Of the map, or of all maps."""
        return TENSOR_MAP_BYTES * (_TMA_UNIT // DTYPES[self.dtype].size if self.anywhere else 1)

    def encoded(self, address: int, encode: "MapEncoder") -> bytes:
        """The map, or the maps, for a tensor whose first element is at `address`."""
        if not self.anywhere:
            return encode(self, address)
        return b"".join(encode(each, address - address % _TMA_UNIT) for each in self._each(address))

    def _each(self, address: int) -> Iterator["TensorMapArg"]:
        size = DTYPES[self.dtype].size
        unit, steps = _TMA_UNIT // size, zip(self.extents[2:], self.strides[2:], strict=True)
        last = address % _TMA_UNIT // size + sum((n - 1) * stride for n, stride in steps)
        (columns, rows), apart = self.extents[:2], self.strides[1]
        one = self.strides[0] if columns > 1 else 1
        for first in range(unit):
            extents = (first + columns, rows, _TMA_STEPS, last // unit // _TMA_STEPS + 1)
            strides = (one, apart, unit, unit * _TMA_STEPS)
            yield replace(self, extents=extents, strides=strides, box=(*self.box[:2], 1, 1), axes=(), anywhere=False)

    @property
    def stride_bytes(self) -> tuple[int, ...]:
        """Of all dimensions but the first. That of a dimension with one element does not matter: any that TMA takes."""
        pairs = zip(self.extents[1:], self.strides[1:], strict=True)
        return tuple(stride * DTYPES[self.dtype].size if extent > 1 else _TMA_UNIT for extent, stride in pairs)

    def complaint(self, address: int) -> str | None:
        """What TMA would not take, for a tensor whose first element is at `address`."""
        if not self.anywhere:
            return self._complaint(address)
        if address % DTYPES[self.dtype].size or min(self.strides) < 0:
            return f"it must begin at an element, with strides from 0 on, got {address:#x} and {self.strides}"
        *_, longest = self._each(address)
        return longest.complaint(address - address % _TMA_UNIT)

    def _complaint(self, address: int) -> str | None:
        size, row = DTYPES[self.dtype].size, self.box[0] * DTYPES[self.dtype].size
        if self.strides[0] != 1 and self.extents[0] > 1:
            return f"its rows must be contiguous, but neighbouring elements are {self.strides[0]} apart"
        if address % _TMA_UNIT:
            return f"it must begin at a multiple of {_TMA_UNIT} bytes, not at {address:#x}"
        for stride in self.stride_bytes:
            if stride % _TMA_UNIT or not 0 <= stride < _TMA_REACH:
                return (
                    f"its strides must be multiples of {_TMA_UNIT // size} elements, from 0 on, got {self.strides[1:]}"
                )
        if not all(1 <= extent <= _TMA_EXTENT for extent in self.extents):
            return f"its dimensions must be 1 to 2^32 long, got {self.extents}"
        if not all(1 <= n <= _TMA_BOX for n in self.box) or row % _TMA_UNIT or (self.swizzle and row != self.swizzle):
            # Rows shorter than the swizzle are allowed, but where they then lie is not what is modelled here.
            rows = f"its rows {self.swizzle // size}" if self.swizzle else f"its rows multiples of {_TMA_UNIT // size}"
            return f"its box must be 1 to {_TMA_BOX} long and {rows}, got {self.box}"
        return None


TMA_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Widths in bytes (0: none) and their numbers in tensor maps, `CUtensorMapSwizzle`."""

TENSOR_MAP_BYTES = 128

_TMA_UNIT, _TMA_REACH, _TMA_EXTENT, _TMA_BOX, _TMA_STEPS = 16, 1 << 40, 1 << 32, 256, 1 << 20

Arg = PointerArg | ViewArg | ScalarArg | TensorMapArg
MapEncoder = Callable[[TensorMapArg, int], bytes]
"""Makes a device's tensor map of 128 bytes for a tensor whose first element is at an address."""


@dataclass(frozen=True)
class Zero:
    """Step: set a whole buffer to zero bytes (before kernels that accumulate into it)."""

    buffer: str


@dataclass(frozen=True)
class Launch:
    """Step: launch one kernel. `smem` is dynamic shared memory in bytes a block, `cluster` blocks a cluster (sm_90).

    `overlaps`: it may begin while the launch before it still runs, and waits for that one itself (sm_90).
    """

    kernel: str
    grid: Dim3
    block: Dim3
    smem: int
    args: tuple[Arg, ...]
    cluster: Dim3 = (1, 1, 1)
    overlaps: bool = False

    @property
    def clustered(self) -> bool:
        return self.cluster != (1, 1, 1)

    @property
    def has_attributes(self) -> bool:
        """Whether the driver is to be told more than grid, block and shared memory."""
        return self.clustered or self.overlaps

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


Step = Zero | Launch


@dataclass(frozen=True)
class LaunchPlan:
    """Buffers by name and the steps in order. Results are judged by what `arithmetic` allows.

    `restores`: buffers, each with another one whose content it has when the steps begin: what kernels change in place.
    Devices see to it before each run, out of the time.
    """

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    arithmetic: str = FULL
    restores: tuple[tuple[str, str], ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, each once, in order of first launch."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))


_SCALAR_FORMAT = {"int": "i", "long long": "q", "float": "f", "double": "d"}


def no_tensor_maps(arg: TensorMapArg, address: int) -> bytes:
    """Encodes none: for launches that have none.

    Raises:
        LaunchError: always.
    """
    raise LaunchError(f"nothing here makes tensor maps, such as {arg.name!r} at {address:#x}")


def argument_places(args: Sequence[Arg]) -> tuple[int, ...]:
    """The offset of each argument in C's layout."""
    places, end = [], 0
    for arg in args:
        size, alignment = _extent(arg)
        places.append(end + -end % alignment)
        end = places[-1] + size
    return tuple(places)


def pack_arguments(
    args: tuple[Arg, ...],
    addresses: Mapping[str, int],
    encode: MapEncoder = no_tensor_maps,
    places: Sequence[int] | None = None,
) -> bytes:
    """Kernel parameters in CUDA's parameter layout, from each buffer's address.

    `places`: the offset of each, as a compiled kernel has them; without it natural alignment decides.

    Raises:
        LaunchError: TMA does not take a tensor that a tensor map describes.
    """
    packed = b""
    for arg, place in zip(args, argument_places(args) if places is None else places, strict=True):
        packed += b"\0" * (place - len(packed)) + _packed(arg, addresses, encode)
    return packed


def _extent(arg: Arg) -> tuple[int, int]:
    """An argument's size and alignment in bytes."""
    if isinstance(arg, ScalarArg):
        size = struct.calcsize("<" + _SCALAR_FORMAT[arg.ctype])
        return size, size
    if isinstance(arg, TensorMapArg):
        return arg.nbytes, 64
    return 8 + 8 * (len(arg.strides) if isinstance(arg, ViewArg) else 0), 8


def _packed(arg: Arg, addresses: Mapping[str, int], encode: MapEncoder) -> bytes:
    if isinstance(arg, ScalarArg):
        return struct.pack("<" + _SCALAR_FORMAT[arg.ctype], arg.value)
    address = addresses[arg.storage] + arg.offset * DTYPES[arg.dtype].size
    if isinstance(arg, TensorMapArg):
        if (complaint := arg.complaint(address)) is not None:
            raise LaunchError(f"{arg.name}: TMA cannot copy this tensor: {complaint}")
        return arg.encoded(address, encode)
    strides = arg.strides if isinstance(arg, ViewArg) else ()
    return struct.pack(f"<Q{len(strides)}q", address, *strides)
