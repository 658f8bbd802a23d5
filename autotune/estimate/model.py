"""How long a plan takes on a GPU, from what its launches do (`Counts`), the schedules of their machine code
(`Schedule`) and the resources that the compiler gave them.

For each launch

    time = (warps**k + memory**k)**(1/k)

- *warps*: the compiled code of all warps, instruction by instruction, with as many blocks on an SM as fit; blocks start
  in the grid's order (`autotune.estimate.grid`), so that tails and uneven blocks count.
- *memory*: bytes over the bandwidth of L2 or of device memory, the slower of the two.

The other parts of a `LaunchEstimate` explain it: what each pipe would need if nothing else took time. Figures of the
GPU are published ones (`DeviceSpec`, `Rates`). Two constants are fitted: k, and what a barrier costs (`warps`), on a
random half of the configurations that an H200 measured, judged by the other half (docs/estimate.md). None depends on a
family.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from autotune.core.errors import LaunchError
from autotune.core.measurement import KernelResources, Timing
from autotune.core.model_version import MODEL
from autotune.core.plan import Launch, LaunchPlan, Zero
from autotune.estimate.counts import MMA_FLOPS, Counts, working_blocks
from autotune.estimate.grid import balance_of, clocks_of_grid
from autotune.estimate.launches import device_bytes, fitting_blocks, found_resources
from autotune.estimate.schedule import ALU_CLOCKS, Schedule, tensor_rate
from autotune.gpus.rates import Rates, rates_of
from autotune.gpus.spec import DeviceSpec

METHOD = f"estimate, model {MODEL}: warps of the compiled code, executed as often as counted on the emulator"

Bound = Literal["ALU", "tensor", "shared memory", "memory"]
Part = Literal["warps", "issue", "alu", "fp32", "special", "tensor", "shared", "port", "latency", "l2", "dram"]

OVERLAP = 2.0
"""Fitted: how well warps and memory overlap (1: not at all)."""

MEMORY_SHARE = 0.92
"""Of the published bandwidth: what a copy of a large array reaches."""

_FIRST_LAUNCH_S = 3e-6
_STEP_S = 1e-6  # from the end of one kernel to the start of the next, in one stream

_BOUNDS: Mapping[Part, Bound] = {
    "issue": "ALU", "alu": "ALU", "fp32": "ALU", "special": "ALU", "tensor": "tensor", "shared": "shared memory",
    "port": "memory", "l2": "memory", "dram": "memory",
}  # fmt: skip


@dataclass(frozen=True)
class LaunchEstimate:
    """One launch: its estimated seconds, and the seconds that each part would take alone.

    `parts["latency"]`: if pipes were never busy. `balance`: the busiest SM's work over the mean. `waves`: blocks that
    follow one another on an SM.
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
        return all(self.parts["latency"] > self.parts[part] for part in _BOUNDS)


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
        return asdict(self)


def predict(
    plan: LaunchPlan,
    resources: Sequence[KernelResources],
    counts: Sequence[Counts],
    schedules: Sequence[Schedule],
    spec: DeviceSpec,
) -> Estimate:
    """Estimated time of a plan on `spec`. Deterministic.

    Args:
        plan: steps for the whole problem.
        resources: `kernel_resources` of it.
        counts: of each launch, in order.
        schedules: of each launch, in order.
        spec: the GPU.

    Raises:
        LaunchError: a launch has no resources, counts or schedule, or does not fit on an SM.
    """
    if not len(plan.launches) == len(counts) == len(schedules):
        raise LaunchError(
            f"{len(plan.launches)} launches, but counts of {len(counts)} and schedules of {len(schedules)}: "
            "trace the plan again"
        )
    sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
    launches = tuple(
        _launch(launch, found_resources(launch, resources), count, schedule, spec, sizes)
        for launch, count, schedule in zip(plan.launches, counts, schedules, strict=True)
    )
    zeroed = sum(sizes[step.buffer] for step in plan.steps if isinstance(step, Zero))
    seconds = _FIRST_LAUNCH_S + _STEP_S * len(plan.steps) + zeroed / (MEMORY_SHARE * spec.bandwidth_gbs * 1e9)
    seconds += sum(launch.seconds for launch in launches)
    nbytes = zeroed + sum(launch.nbytes for launch in launches)
    peak = tensor_rate(spec) if any(count.tensor for count in counts) else spec.fp32_tflops * 1e12
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
    launch: Launch, resources: KernelResources, counts: Counts, schedule: Schedule, spec: DeviceSpec,
    sizes: Mapping[str, int],
) -> LaunchEstimate:  # fmt: skip
    fitting = fitting_blocks(launch, resources, spec)
    blocks = working_blocks(launch, counts)
    waves = blocks / (spec.sm_count * schedule.resident)
    balance = balance_of(launch, counts, spec.sm_count)
    nbytes = device_bytes(launch, counts, sizes)
    rates, clock = rates_of(spec), spec.clock_mhz * 1e6
    warps = blocks * math.ceil(launch.threads / spec.warp_size)
    parts: dict[Part, float] = {
        "warps": clocks_of_grid(schedule, launch, counts, spec.sm_count) / clock,
        **{part: balance * time for part, time in _pipes(counts, schedule, warps, spec, rates).items()},
        "latency": max(1.0, waves) * schedule.clocks(1) / clock,
        "l2": counts.sector_bytes / (rates.l2_bytes * clock),
        "dram": nbytes / (MEMORY_SHARE * spec.bandwidth_gbs * 1e9),
    }
    memory = max(parts["l2"], parts["dram"])
    seconds = math.pow(parts["warps"] ** OVERLAP + memory**OVERLAP, 1.0 / OVERLAP)
    slowest = max(_BOUNDS, key=lambda part: parts[part])
    return LaunchEstimate(
        launch.kernel, seconds, parts, _BOUNDS[slowest], counts.flops, nbytes, fitting, waves, balance
    )  # fmt: skip


def _pipes(counts: Counts, schedule: Schedule, warps: int, spec: DeviceSpec, rates: Rates) -> dict[Part, float]:
    """Seconds that each pipe of evenly loaded SMs is busy."""
    clocks = spec.sm_count * spec.clock_mhz * 1e6
    lanes = spec.fp32_tflops * 1e12 / (2.0 * clocks)
    fused = (counts.fp32 / lanes + counts.fp16 / rates.fp16) / 2.0
    exchanged = counts.wavefronts * 128.0 / rates.shared_bytes + counts.shuffles * spec.warp_size / rates.shuffles
    return {
        "issue": warps * schedule.instructions / rates.schedulers / clocks,
        "alu": warps * ALU_CLOCKS * schedule.alu / rates.schedulers / clocks,
        "fp32": fused / clocks,
        "special": counts.special / rates.special / clocks,
        "tensor": counts.tensor * MMA_FLOPS / tensor_rate(spec),
        "shared": exchanged / clocks,
        "port": counts.sector_bytes / rates.port_bytes / clocks,
    }
