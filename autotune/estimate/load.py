"""How busy a plan keeps a GPU, as far as its launches tell before anything is compiled.

- *balance*: the mean work of an SM over that of the one that ends last. Where all blocks have as much that one has as
  many as any; behind a mask some have more, the heaviest comes first, and nobody ends before it.
- *hiding* latency: w / (w + 4) for w warps on an SM, of the blocks that its shared memory, threads and registers have
  room for; where warps compute in groups of four and others fetch (WARP_GROUPS), w / (w + 6) of those that compute.
- *reach*: the share of the bandwidth for which enough bytes are under way: as a block's tiles wait in its shared
  memory, by how much of that the blocks at work have.
- *begun*: 1.5 µs for each block that begins on an SM after others, of all launches that have tiles, or 0.5 µs for each
  piece of work where blocks stay.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.plan import Launch, LaunchPlan
from autotune.estimate.fallback import product_weight
from autotune.gpus.spec import DeviceSpec

_HALF_HIDDEN_WARPS = 4.0
_HALF_HIDDEN_IN_GROUPS = 6.0  # of warps that compute in groups of four, and wait for one another
_NEXT_BLOCK_MS = 1.5e-3  # until the next block on an SM computes: its start, its first tiles, the last one's results
_NEXT_PIECE_MS = 0.5e-3  # where a block stays, and what the next piece of work needs comes early
_TAIL = 0.6  # of the heaviest block: how much later SMs end that still have one when others have none
_WAITING_BYTES = 65536.0
"""Shared memory for tiles that an SM needs to have enough bytes under way: half of it waits for memory, at a bandwidth
of 4.8 TB/s for some 0.9 µs."""

_FETCHED_BETWEEN = 0.93
"""Of the bandwidth, what warps reach that fetch between computing, where others do nothing else (WARP_GROUPS): steps of
decoding took 1.07 to 1.18 times as long on an H200."""

_BYTES_A_THREAD = 64.0  # under way where tiles do not come through dynamic shared memory


@dataclass(frozen=True)
class Load:
    """Shares (0 to 1) of what a plan's heaviest launch uses: `balance` of the SMs' time, `busy` of it what does not
    wait for latency either, `reach` of the bandwidth. `begun_ms`: until blocks that come after others compute."""

    balance: float
    busy: float
    reach: float
    begun_ms: float


def load_of(
    plan: LaunchPlan, names: Mapping[str, Any], heaviest: float, spec: DeviceSpec, *, tensor_cores: bool
) -> Load:  # fmt: skip
    """What a plan's heaviest launch uses: of several with operands as large, the one with most shared memory.

    By `names` families say how their blocks work: one whose blocks stay and take one piece of work after the other
    calls the number of pieces WORKS; one in which some warps only fetch calls the groups of four that compute
    WARP_GROUPS; MIN_BLOCKS is for how many blocks an SM its threads leave registers; HEADS_AT_ONCE of the heads (0:
    all) have their blocks before others have any. `heaviest`: the block with most work, over the mean (`Op.heaviest`).
    """
    sizes = {buffer.name: buffer.elements for buffer in plan.buffers}
    launch = max(plan.launches, key=lambda launch: (product_weight(launch, sizes), launch.smem))
    pieces = max(launch.blocks, names.get("WORKS", 0))
    least = names.get("MIN_BLOCKS", 1) if tensor_cores else None
    at_once = _at_once(launch, least, spec)
    groups = names.get("WARP_GROUPS", 0)

    def hidden(blocks: int) -> float:
        warps = blocks * (4 * groups or math.ceil(launch.threads / spec.warp_size))
        return float(warps / (warps + (_HALF_HIDDEN_IN_GROUPS if groups else _HALF_HIDDEN_WARPS)))

    waiting = max(launch.smem, _BYTES_A_THREAD * launch.threads) * min(launch.blocks / spec.sm_count, at_once)
    waves = [math.ceil(pieces / spec.sm_count) / at_once]
    others = (other for other in plan.launches if other is not launch and other.smem > 0)
    waves += [math.ceil(other.blocks / spec.sm_count) / _at_once(other, least, spec) for other in others]
    an_sm = pieces / spec.sm_count
    most = math.ceil(an_sm) if heaviest <= 1.0 else _uneven(launch, pieces, at_once, heaviest, names, spec)
    return Load(
        balance=an_sm / max(most, heaviest),
        busy=an_sm / _longest(most, heaviest, at_once, hidden),
        reach=min(1.0, waiting / _WAITING_BYTES) * (1.0 if groups else _FETCHED_BETWEEN),
        begun_ms=(_NEXT_PIECE_MS if pieces > launch.blocks else _NEXT_BLOCK_MS) * (sum(waves) - len(waves)),
    )


def _longest(most: float, heaviest: float, at_once: int, hidden: Callable[[int], float]) -> float:
    """When the last SM ends, in times of a mean block without latency. Beside others no block is faster than alone."""
    return max(most / hidden(at_once), heaviest / hidden(1) if heaviest > 1.0 else 0.0)


def _uneven(
    launch: Launch, pieces: int, at_once: int, heaviest: float, names: Mapping[str, Any], spec: DeviceSpec
) -> float:  # fmt: skip
    """How many mean pieces of work the SM has that has most, where the heaviest come first.

    Where all blocks begin at once an SM has every sm_count-th. Else one that is done takes the next, so that most
    differ by the last ones, which are light; but where some heads come after all others, theirs are heavy again.
    """
    an_sm = pieces / spec.sm_count
    heads = names.get("HEADS_IN_ALL", names.get("KEY_HEADS", 0))
    last = pieces * min(1.0, (names.get("HEADS_AT_ONCE", 0) or heads) / heads) if heads else pieces
    if last == pieces == launch.blocks <= spec.sm_count * at_once:
        count = math.ceil(an_sm)
        return heaviest * (count - count * (count - 1) / (2 * an_sm))
    return an_sm + _TAIL * heaviest * max(0.0, 1.0 - last / spec.sm_count)


def _at_once(launch: Launch, least: int | None, spec: DeviceSpec) -> int:
    """Blocks of a launch that the busiest SM has at the same time."""
    return min(math.ceil(launch.blocks / spec.sm_count), _resident(launch, least, spec))


def _resident(launch: Launch, least: int | None, spec: DeviceSpec) -> int:
    """Blocks of a launch that an SM has room for, as far as that is known before anything is compiled; at least 1.

    On tensor cores a thread takes as many registers as it may.
    """
    by_threads = spec.max_threads_per_sm // launch.threads
    by_smem = spec.shared_memory_per_sm // (launch.smem + spec.reserved_shared_memory)
    most = min(by_threads, by_smem, spec.max_blocks_per_sm)
    if least is not None:
        a_thread = spec.max_registers_per_thread + 1
        most = min(most, max(least, spec.registers_per_sm // (a_thread * launch.threads)))
    return max(1, most)
