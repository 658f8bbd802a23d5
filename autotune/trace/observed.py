"""What a traced run finds and counts."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from autotune.core.plan import Dim3

FindingKind = Literal[
    "out of bounds", "outside of every tensor", "misaligned", "shared memory race", "global memory race",
    "race between blocks", "read of what nobody wrote", "asynchronous copy not waited for", "divergent barrier",
    "deadlock", "wrong warp mask", "input written", "index out of bounds", "crash", "missing proxy fence",
    "overwritten while being read", "kernel before not waited for",
]  # fmt: skip
"""What can be wrong with a kernel."""

Operation = Literal[
    "global load", "global store", "global atomic", "shared load", "shared store", "shared atomic", "barrier",
    "warp barrier", "shuffle", "vote", "tensor", "matrix load", "other", "async copy",
]  # fmt: skip
"""What an instruction does."""


@dataclass(frozen=True)
class Place:
    """A line of the rendered source, and where the code lies that is inlined there: `common/tile.cuh:33`.

    `origin` is the line's place in the template, `softmax.cu.j2:57`, where that has been looked up.
    """

    line: int  # of kernel.cu; 0: unknown
    inner: str = ""  # empty: the line itself
    origin: str = ""

    def __str__(self) -> str:
        if not self.line:
            return self.inner or "line unknown"
        return (self.origin or f"line {self.line}") + (f" ({self.inner})" if self.inner else "")


@dataclass(frozen=True)
class Party:
    """One of the two accesses of a race, or the thread that a barrier misses."""

    place: Place
    block: Dim3
    thread: Dim3
    access: Literal["read", "write", ""]


@dataclass(frozen=True)
class Finding:
    """Something wrong. `space` is a buffer, `dynamic shared memory`, `static shared memory` or empty.

    `offset` counts bytes from the start of the space; `count` tells how often it happened at this place.
    """

    kind: FindingKind
    kernel: str
    place: Place
    block: Dim3
    thread: Dim3
    access: Literal["read", "write", ""]
    nbytes: int
    space: str
    offset: int
    detail: str
    other: Party | None
    count: int

    @property
    def line(self) -> int:
        """Of the rendered source."""
        return self.place.line

    def __str__(self) -> str:
        where = f"kernel {self.kernel}, {self.place}, block {_triple(self.block)}, thread {_triple(self.thread)}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.kind}: {self.detail}; {where}{times}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "message": str(self)}


@dataclass(frozen=True)
class LineCounters:
    """What one instruction of the source did in the blocks that were traced in full.

    `requests` are those of warps; `lanes` the threads that took part in them; `nbytes` what one lane moves (of a
    tensor-core product: the warp's multiply-adds).
    """

    place: Place
    operation: Operation
    nbytes: int
    requests: int
    lanes: int
    sectors: int = 0  # of 32 bytes: global memory
    ideal_sectors: int = 0  # if neighbouring lanes had neighbouring addresses
    wavefronts: int = 0  # passes through shared memory
    ideal_wavefronts: int = 0
    worst: int = 0  # sectors of one request, or the n of an n-way bank conflict

    @property
    def conflicts(self) -> int:
        """Passes that bank conflicts cost."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True)
class Arithmetic:
    """Operations of single lanes; a fused multiply-add is two, minima and maxima are none.

    `special`: exponentials, logarithms, sines and so on.
    """

    fp32: int = 0
    fp16: int = 0
    fp64: int = 0
    special: int = 0


@dataclass(frozen=True)
class LineArithmetic:
    """What a line of the rendered source computes, code of headers that is inlined there included."""

    line: int
    arithmetic: Arithmetic


@dataclass(frozen=True)
class KernelTrace:
    """One launch. Counters are of the `traced` blocks; times `scale` they are those of all `blocks`.

    `scale` is by accesses: what all blocks together made, over what the traced ones made; `first` those of block 0
    over the mean of all blocks.
    """

    kernel: str
    launch: int  # which of the plan's launches
    blocks: int
    threads: int  # a block
    traced: tuple[int, ...]
    scale: float
    lines: tuple[LineCounters, ...]
    computed: tuple[LineArithmetic, ...] = ()
    first: float = 1.0

    @property
    def arithmetic(self) -> Arithmetic:
        """Of all lines."""
        names = [field.name for field in fields(Arithmetic)]
        return Arithmetic(**{name: sum(getattr(row.arithmetic, name) for row in self.computed) for name in names})

    def of(self, *operations: Operation) -> Iterator[LineCounters]:
        """The lines with these operations."""
        return (line for line in self.lines if line.operation in operations)

    def requests(self, *operations: Operation) -> float:
        """By all blocks."""
        return self.scale * sum(line.requests for line in self.of(*operations))

    def sectors(self, *operations: Operation) -> float:
        """By all blocks."""
        return self.scale * sum(line.sectors for line in self.of(*operations))

    def lanes(self, *operations: Operation) -> float:
        """Accesses (or calls) of single threads, by all blocks."""
        return self.scale * sum(line.lanes for line in self.of(*operations))

    @property
    def wavefronts(self) -> float:
        """Passes through shared memory, by all blocks."""
        return self.scale * sum(line.wavefronts for line in self.lines)

    @property
    def conflicts(self) -> float:
        """Those of them that bank conflicts cost."""
        return self.scale * sum(line.conflicts for line in self.lines)

    @property
    def tensor_operations(self) -> float:
        """Of tensor cores, a multiply-add being two, by all blocks."""
        return self.scale * sum(2.0 * row.nbytes * row.requests for row in self.of("tensor"))

    @property
    def bytes_read(self) -> float:
        """From L2 and beyond: 32 for each sector of a load."""
        return 32.0 * self.sectors("global load")

    @property
    def bytes_written(self) -> float:
        """32 for each sector of a store or an atomic operation."""
        return 32.0 * self.sectors("global store", "global atomic")

    @property
    def coalescing(self) -> float:
        """Sectors that would do, over sectors moved (1 is best)."""
        moved = sum(line.sectors for line in self.lines)
        return sum(line.ideal_sectors for line in self.lines) / moved if moved else 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self), "arithmetic": asdict(self.arithmetic),
            "wavefronts": self.wavefronts, "conflicts": self.conflicts,
            "tensor_operations": self.tensor_operations, "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written, "coalescing": self.coalescing,
        }  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """A traced run of a plan: one entry a launch, in order, and what was found wrong.

    `complete`: every launch ran to its end. `truncated`: accesses that no log had room for (counters are scaled up).
    """

    kernels: tuple[KernelTrace, ...]
    findings: tuple[Finding, ...]
    complete: bool
    failure: str = ""
    truncated: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "complete": self.complete, "failure": self.failure, "truncated": self.truncated,
            "seconds": round(self.seconds, 3), "kernels": [kernel.to_json() for kernel in self.kernels],
            "findings": [finding.to_json() for finding in self.findings],
        }  # fmt: skip


def _triple(index: Dim3) -> str:
    return f"({index[0]},{index[1]},{index[2]})"
