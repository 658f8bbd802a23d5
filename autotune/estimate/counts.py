"""What the launches of a plan do, counted: the input of `autotune.estimate.model`.

Counts come from traced runs of small problems. An attention problem's work is a polynomial in its length: as long as T
is a multiple of the tiles, a launch does b*T + c*T**2 of everything for each head (b: what happens once a row, c: what
happens once a pair). Two short traced runs, one twice as long as the other, give b and c, and these the counts at any
length; heads and batches multiply them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from autotune.core.plan import Launch
from autotune.trace.observed import KernelTrace


@dataclass(frozen=True)
class Counts:
    """Of all blocks of one launch. Requests are those of warps, sectors have 32 bytes.

    `first`: the work of the block with index 0 along `axis` of the grid over the mean; along that axis work changes
    linearly to 2 - `first` (causal tiles). 1: all blocks have the same work. `idle`: blocks that end at once, those
    with the highest x of the highest z, where a grid has room for more heads than there are.
    """

    kernel: str
    fp32: float = 0.0  # operations of lanes; a fused multiply-add is two
    fp16: float = 0.0  # likewise
    special: float = 0.0  # exponentials and the like, of lanes
    tensor: float = 0.0  # m16n8k16 products of warps
    shared_loads: float = 0.0  # requests
    shared_stores: float = 0.0  # requests
    wavefronts: float = 0.0  # passes through shared memory
    global_loads: float = 0.0  # requests that a warp waits for
    async_copies: float = 0.0  # requests from global to shared memory that it does not wait for
    global_stores: float = 0.0  # requests, atomic ones among them
    sectors_loaded: float = 0.0
    sectors_stored: float = 0.0  # atomic ones among them
    barriers: float = 0.0  # of the block, arrivals of warps
    shuffles: float = 0.0  # requests, votes among them
    first: float = 1.0
    axis: int = 0
    idle: int = 0

    @property
    def flops(self) -> float:
        """Floating-point operations, those of tensor cores included."""
        return self.fp32 + self.fp16 + self.special + MMA_FLOPS * self.tensor

    @property
    def loads(self) -> float:
        """Requests to global memory that load, asynchronous or not."""
        return self.global_loads + self.async_copies

    @property
    def sector_bytes(self) -> float:
        """Moved between SMs and L2."""
        return 32.0 * (self.sectors_loaded + self.sectors_stored)

    def times(self, factor: float) -> "Counts":
        """Of `factor` times as many blocks."""
        return self.combined(factor, self, 0.0)

    def combined(self, factor: float, other: "Counts", others: float) -> "Counts":
        """Every count `factor` times, plus those of `other` `others` times; none below 0."""
        sums: dict[str, Any] = {
            name: max(0.0, factor * float(getattr(self, name)) + others * float(getattr(other, name)))
            for name in ADDITIVE
        }
        return replace(self, **sums)

    def to_json(self) -> dict[str, Any]:
        """Plain data without zeros; `Counts(**data)` reads it back."""
        return {name: value for name, value in asdict(self).items() if value or name == "kernel"}


MMA_FLOPS = 2 * 16 * 8 * 16
"""Of one m16n8k16 product."""

ADDITIVE = tuple(field.name for field in fields(Counts) if field.name not in ("kernel", "first", "axis", "idle"))
"""Names of the counts that add up over blocks."""


def counts_of(trace: KernelTrace) -> Counts:
    """Counts of one traced launch, all its blocks."""
    arithmetic = trace.arithmetic
    copies = trace.requests("async copy")  # each is a global load, too
    return Counts(
        kernel=trace.kernel,
        fp32=trace.scale * arithmetic.fp32,
        fp16=trace.scale * arithmetic.fp16,
        special=trace.scale * arithmetic.special,
        tensor=trace.requests("tensor"),
        shared_loads=trace.requests("shared load", "matrix load"),
        shared_stores=trace.requests("shared store", "shared atomic"),
        wavefronts=trace.wavefronts,
        global_loads=max(0.0, trace.requests("global load") - copies),
        async_copies=copies,
        global_stores=trace.requests("global store", "global atomic"),
        sectors_loaded=trace.sectors("global load"),
        sectors_stored=trace.sectors("global store", "global atomic"),
        barriers=trace.requests("barrier"),
        shuffles=trace.requests("shuffle", "vote"),
    )


def extrapolate(short: Counts, double: Counts, length: int, T: int, heads: int) -> Counts:
    """Counts at length T and `heads` heads, from those of one head at `length` and at twice that (see above)."""
    x = T / length
    # b*T + c*T**2 through both: short * (2x - x**2) + double * (x**2 - x) / 2.
    return short.combined(heads * (2.0 * x - x**2), double, heads * (x**2 - x) / 2.0)


def uneven(
    counts: Counts, traced: Counts, small: Launch, smaller: Launch, whole: Launch, heads: int, first: float
) -> Counts:
    """`counts` of the launch `whole` with the unevenness seen in `small`, one head of it.

    Blocks of a head lie along the axis that grows with the length. One head may leave other blocks of `small` without
    work, where the grid has room for more heads.

    Args:
        counts: of `whole`.
        traced: of `small`.
        small: the launch that was traced.
        smaller: the same at half the length.
        whole: the launch to describe.
        heads: of `whole`.
        first: work of the small launch's first block over the mean of all its blocks.
    """
    axes = [axis for axis in range(3) if small.grid[axis] > smaller.grid[axis]]
    if len(axes) != 1:
        return counts
    axis = axes[0]
    n, many = small.grid[axis], whole.grid[axis]
    beside = max(1, whole.blocks // (many * heads))  # blocks of a head that lie side by side
    first *= n * beside / small.blocks
    counts = replace(counts, idle=max(0, whole.blocks - many * beside * heads))
    if abs(first - 1.0) < _EVEN:
        return counts
    mean = _work(traced) / (n * beside)
    step = (first - 1.0) * mean * 2.0 / (n - 1)  # from a block to its neighbour: the same at all lengths
    mean_of_whole = _work(counts) / (many * beside * heads)
    slope = step * (many - 1) / 2.0 / max(mean_of_whole, 1e-9)
    return replace(counts, first=1.0 + max(-_MOST_UNEVEN, min(_MOST_UNEVEN, slope)), axis=axis)


_EVEN = 0.02
_MOST_UNEVEN = 0.98


def working_blocks(launch: Launch, counts: Counts) -> int:
    """Blocks of a launch that have work."""
    return launch.blocks - counts.idle


def _work(counts: Counts) -> float:
    """Memory requests of any kind stand for work, as in `KernelTrace.scale`."""
    return counts.shared_loads + counts.shared_stores + counts.loads + counts.global_stores


def grid_ratio(whole: Sequence[Launch], part: Sequence[Launch]) -> list[float]:
    """Blocks of each launch of a plan over those of the same launch in a smaller plan."""
    return [one.blocks / other.blocks for one, other in zip(whole, part, strict=True)]
