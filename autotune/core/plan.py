"""The launch plan: which buffers a kernel family needs and which steps run in which order.

A plan is plain data. Devices allocate the buffers, then run the steps; exports print them as C++.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.core.arithmetic import FULL
from autotune.core.values import DTYPE_SIZE

Role = Literal["input", "output", "workspace"]
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
        """Size in bytes."""
        return self.elements * DTYPE_SIZE[self.dtype]


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
    """An `int`, `long long` or `float` by value; `name` is its expression in the front matter."""

    name: str
    ctype: Literal["int", "long long", "float"]
    value: int | float


Arg = PointerArg | ViewArg | ScalarArg


@dataclass(frozen=True)
class Zero:
    """Step: set a whole buffer to zero bytes (before kernels that accumulate into it)."""

    buffer: str


@dataclass(frozen=True)
class Launch:
    """Step: launch one kernel. `smem` is dynamic shared memory in bytes a block."""

    kernel: str
    grid: Dim3
    block: Dim3
    smem: int
    args: tuple[Arg, ...]

    @property
    def threads(self) -> int:
        """Threads a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


Step = Zero | Launch


@dataclass(frozen=True)
class LaunchPlan:
    """Buffers by name and the steps in order. Results are judged by what `arithmetic` allows."""

    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    arithmetic: str = FULL

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel launches among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, each once, in order of first launch."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))


_SCALAR_FORMAT = {"int": "i", "long long": "q", "float": "f"}


def pack_arguments(args: tuple[Arg, ...], addresses: Mapping[str, int]) -> bytes:
    """Kernel parameters in CUDA's parameter layout (natural alignment), from each buffer's address."""
    packed = b""
    for arg in args:
        if isinstance(arg, ScalarArg):
            piece = struct.pack("<" + _SCALAR_FORMAT[arg.ctype], arg.value)
            alignment = len(piece)
        else:
            address = addresses[arg.storage] + arg.offset * DTYPE_SIZE[arg.dtype]
            strides = arg.strides if isinstance(arg, ViewArg) else ()
            piece, alignment = struct.pack(f"<Q{len(strides)}q", address, *strides), 8
        packed += b"\0" * (-len(packed) % alignment) + piece
    return packed
