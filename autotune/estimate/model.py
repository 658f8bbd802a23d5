"""How long a plan takes on a GPU, from what its launches do (`Counts`) and the resources the compiler gave them.

A launch is bound by what moves data and computes, or by how long its instructions wait for one another:

- *pipes*: for each, the launch's work over the GPU's rate, spread evenly over the SMs. `issue`: instructions of warps;
  `fp32`, `special`, `tensor`: arithmetic; `shared`: passes through shared memory, shuffles and spills; `port`: sectors
  between SM and L2. They work at the same time, so that the slowest counts.
- *latency*: how long one warp would take alone on an SM, times the waves of blocks that follow one another.
- *memory*: bytes over the bandwidth of L2 or of device memory, the slower of the two. What asynchronous copies bring is
  waited for by no warp: it counts as one more pipe.
- *balance*: blocks are given to SMs in the grid's order; the SM that finishes last decides. Causal tiles make blocks
  uneven.

The three overlap, the less the fewer warps there are: time = (pipes**k + latency**k + memory**k)**(1/k) + overheads.

Figures of the GPU are published ones (`DeviceSpec`, `Rates`). Fitted are five constants, marked below: on a random half
of the configurations that an H200 measured, judged by the other half (docs/estimate.md). None depends on a family.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from autotune.devices.rates import Rates, rates_of
from autotune.devices.spec import DeviceSpec
from autotune.errors import LaunchError
from autotune.estimate.counts import MMA_FLOPS, Counts
from autotune.measurement import KernelResources, Timing
from autotune.plan import Launch, LaunchPlan, ScalarArg, Zero

METHOD = "estimate: work counted on the emulator, over the GPU's rates"

Bound = Literal["ALU", "tensor", "shared memory", "memory"]
Part = Literal["issue", "fp32", "special", "tensor", "shared", "port", "latency", "l2", "dram"]

# Fitted: instructions of a kind that a warp has under way at a time, clocks that a barrier costs a warp (what the loads
# before it still wait for included), and how well pipes, latency and memory overlap (1: not at all).
FP32_UNDER_WAY = 3.1
LOADS_UNDER_WAY = 5.6
MMA_UNDER_WAY = 2.6
BARRIER_CLOCKS = 610.0
OVERLAP = 1.26

# Not fitted.
_MEMORY_SHARE = 0.92  # of the published bandwidth: what a copy of a large array reaches
_FIRST_LAUNCH_S = 3e-6
_STEP_S = 1e-6  # from the end of one kernel to the start of the next, in one stream
_MOST_SCHEDULED = 16384  # blocks; of more the last wave matters little

_BOUNDS: Mapping[Part, Bound] = {
    "issue": "ALU", "fp32": "ALU", "special": "ALU", "tensor": "tensor", "shared": "shared memory", "port": "memory",
    "l2": "memory", "dram": "memory",
}  # fmt: skip


@dataclass(frozen=True)
class LaunchEstimate:
    """One launch: its estimated seconds, and the seconds that each part would take alone.

    `balance`: the busiest SM's work over the mean. `waves`: blocks that follow one another on an SM.
    """

    kernel: str
    seconds: float
    parts: Mapping[Part, float]
    bound: Bound
    flops: float
    nbytes: float  # of device memory
    blocks_per_sm: int
    waves: float
    balance: float

    @property
    def waiting(self) -> bool:
        """Whether latency, not the throughput of anything, takes the longest."""
        return max(self.parts, key=lambda part: self.parts[part]) == "latency"


@dataclass(frozen=True)
class Estimate:
    """A plan's estimated time on `device`, in milliseconds, and where it comes from."""

    device: str
    ms: float
    bound: Bound
    intensity: float  # operations a byte of device memory
    ridge: float  # the intensity above which the device computes longer than it loads
    launches: tuple[LaunchEstimate, ...]

    @property
    def timing(self) -> Timing:
        """As a time of kind "estimated"."""
        return Timing("estimated", self.ms, self.ms, self.ms, self.ms, 0, METHOD)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def predict(
    plan: LaunchPlan, resources: Sequence[KernelResources], counts: Sequence[Counts], spec: DeviceSpec
) -> Estimate:
    """Estimated time of a plan on `spec`. Deterministic.

    Args:
        plan: steps for the whole problem.
        resources: `kernel_resources` of it.
        counts: of each launch, in order.
        spec: the GPU.

    Raises:
        LaunchError: a launch has no resources or counts, or does not fit on an SM.
    """
    if len(counts) != len(plan.launches):
        raise LaunchError(f"{len(plan.launches)} launches, but counts of {len(counts)}: trace the plan again")
    sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
    launches = tuple(
        _launch(launch, _find(launch, resources), count, spec, sizes)
        for launch, count in zip(plan.launches, counts, strict=True)
    )
    zeroed = sum(sizes[step.buffer] for step in plan.steps if isinstance(step, Zero))
    seconds = _FIRST_LAUNCH_S + _STEP_S * len(plan.steps) + zeroed / (_MEMORY_SHARE * spec.bandwidth_gbs * 1e9)
    seconds += sum(launch.seconds for launch in launches)
    nbytes = zeroed + sum(launch.nbytes for launch in launches)
    tensor = any(count.tensor for count in counts)
    peak = _tensor_rate(spec) if tensor else spec.fp32_tflops * 1e12
    intensity = sum(launch.flops for launch in launches) / max(nbytes, 1.0)
    ridge = peak / (spec.bandwidth_gbs * 1e9)
    return Estimate(spec.name, 1e3 * seconds, _bound(launches), intensity, ridge, launches)


def _bound(launches: Sequence[LaunchEstimate]) -> Bound:
    """Of the launches that take the most time together."""
    sums: dict[Bound, float] = dict.fromkeys(_BOUNDS.values(), 0.0)
    for launch in launches:
        sums[launch.bound] += launch.seconds
    return max(sums, key=lambda bound: sums[bound])


def _launch(
    launch: Launch, resources: KernelResources, counts: Counts, spec: DeviceSpec, sizes: Mapping[str, int]
) -> LaunchEstimate:
    warps = math.ceil(launch.threads / spec.warp_size)
    fitting = round(resources.occupancy * spec.max_threads_per_sm / (warps * spec.warp_size))
    if fitting < 1:
        raise LaunchError(f"kernel {launch.kernel} does not fit on an SM of {spec.title}")
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    resident = min(fitting, math.ceil(blocks / spec.sm_count))
    waves = blocks / (spec.sm_count * resident)
    of_sms, of_slots = _balance(launch, counts, spec.sm_count, resident)
    nbytes = _device_bytes(launch, counts, sizes)
    clock = spec.clock_mhz * 1e6
    rates = rates_of(spec)
    spilled = _spilled(resources, counts, blocks * warps)
    parts: dict[Part, float] = {
        **{part: of_sms * time for part, time in _pipes(counts, spilled, spec, rates).items()},
        "latency": of_slots * waves * _warp_clocks(counts, spilled, warps, rates) / (blocks * warps) / clock,
        "l2": counts.sector_bytes / (rates.l2_bytes * clock),
        "dram": nbytes / (_MEMORY_SHARE * spec.bandwidth_gbs * 1e9),
    }
    pipes = max(parts[part] for part in parts if part not in ("latency", "l2", "dram"))
    memory = max(parts["l2"], parts["dram"])
    beside = counts.async_copies / max(counts.loads, 1.0)  # what asynchronous copies bring is one more pipe
    seconds = _together(max(pipes, beside * memory), parts["latency"], (1.0 - beside) * memory)
    slowest = max(_BOUNDS, key=lambda part: parts[part])
    return LaunchEstimate(launch.kernel, seconds, parts, _BOUNDS[slowest], counts.flops, nbytes, fitting, waves, of_sms)


def _together(*times: float) -> float:
    return math.pow(sum(time**OVERLAP for time in times), 1.0 / OVERLAP)


def _pipes(counts: Counts, spilled: float, spec: DeviceSpec, rates: Rates) -> dict[Part, float]:
    """Seconds that each pipe of evenly loaded SMs is busy."""
    clocks = spec.sm_count * spec.clock_mhz * 1e6
    lanes = spec.fp32_tflops * 1e12 / (2.0 * clocks)
    warp = spec.warp_size
    fused = (counts.fp32 / lanes + counts.fp16 / rates.fp16) / 2.0
    instructions = (
        (counts.fp32 + counts.fp16) / (2.0 * warp) + 2.0 * counts.special / warp + counts.tensor + counts.shared_loads
        + counts.shared_stores + counts.loads + counts.global_stores + counts.barriers + counts.shuffles
        + spilled
    )  # fmt: skip
    exchanged = counts.wavefronts * 128.0 / rates.shared_bytes + counts.shuffles * warp / rates.shuffles
    return {
        "issue": instructions / rates.schedulers / clocks,
        "fp32": fused / clocks,
        "special": counts.special / rates.special / clocks,
        "tensor": counts.tensor * MMA_FLOPS / _tensor_rate(spec),
        "shared": (exchanged + spilled) / clocks,
        "port": counts.sector_bytes / rates.port_bytes / clocks,
    }


def _tensor_rate(spec: DeviceSpec) -> float:
    """Operations a second that `mma.sync` reaches."""
    rates = rates_of(spec)
    per_clock = 2.0 * rates.tensor * spec.sm_count * spec.clock_mhz * 1e6
    return rates.mma_share * (per_clock or spec.tensor_tflops * 1e12)


def _warp_clocks(counts: Counts, spilled: float, warps: int, rates: Rates) -> float:
    """Clocks that all warps would take one after the other. `warps`: of a block; one alone waits at no barrier."""
    arithmetic = (counts.fp32 + counts.fp16) / 64.0 * rates.fp32_latency
    special = counts.special / 32.0 * rates.special_latency / 2.0
    loads = (counts.shared_loads + spilled) * rates.shared_latency + counts.global_loads * rates.l2_latency
    return (
        (arithmetic + special) / FP32_UNDER_WAY
        + loads / LOADS_UNDER_WAY
        + counts.tensor * rates.mma_latency / MMA_UNDER_WAY
        + counts.shuffles * rates.shuffle_latency
        + counts.barriers * (BARRIER_CLOCKS if warps > 1 else 0.0)
    )


def _spilled(resources: KernelResources, counts: Counts, warps: int) -> float:
    """Requests to spilled registers.

    The compiler tells how many instructions there are, not how often they are executed: taken to be once between any
    two barriers, which is where tiles change.
    """
    return resources.spill_bytes / 4.0 * max(float(warps), counts.barriers)


def _device_bytes(launch: Launch, counts: Counts, sizes: Mapping[str, int]) -> float:
    """Bytes of device memory: each buffer once at most, the rest is found in L2."""
    storages = dict.fromkeys(arg.storage for arg in launch.args if not isinstance(arg, ScalarArg))
    return min(float(sum(sizes[name] for name in storages)), counts.sector_bytes)


def _balance(launch: Launch, counts: Counts, sms: int, resident: int) -> tuple[float, float]:
    """The last SM's and the last slot's work over the mean, when blocks start in the grid's order."""
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if counts.first == 1.0 or blocks > _MOST_SCHEDULED:
        return _even(blocks, sms), _even(blocks, sms * resident)
    works = list(_works(launch, counts))
    return _last(works, sms) * sms / blocks, _last(works, sms * resident) * sms * resident / blocks


def _even(blocks: int, slots: int) -> float:
    return math.ceil(blocks / slots) * slots / blocks


def _works(launch: Launch, counts: Counts) -> Iterator[float]:
    """Work of each block over the mean, in the grid's order (x fastest)."""
    size = launch.grid[counts.axis]
    before = math.prod(launch.grid[: counts.axis])
    for block in range(math.prod(launch.grid)):
        place = block // before % size
        yield 1.0 + (counts.first - 1.0) * (1.0 - 2.0 * place / max(1, size - 1))


def _last(works: Sequence[float], slots: int) -> float:
    """When the last of `slots` ends, if each takes the next work as soon as it is free."""
    busy = [0.0] * slots
    for work in works:
        heapq.heapreplace(busy, busy[0] + work)
    return max(busy)


def _find(launch: Launch, resources: Sequence[KernelResources]) -> KernelResources:
    for found in resources:
        if (found.kernel, found.threads, found.dynamic_smem) == (launch.kernel, launch.threads, launch.smem):
            return found
    raise LaunchError(f"kernel {launch.kernel} is launched but its resources are not known")
