"""How long a kernel's warps take on an SM: its machine code, executed as often as was counted, warp beside warp.

Each loop is simulated by itself (`autotune.estimate.warps`), with the blocks that are executed in most of its rounds;
what is executed in fewer adds its share of instructions. Code outside of all loops is gone through once.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.core.errors import BuildError
from autotune.core.measurement import KernelResources
from autotune.core.plan import LaunchPlan
from autotune.estimate.controlflow import Code, loops_of
from autotune.estimate.counts import MMA_FLOPS, Counts, working_blocks
from autotune.estimate.flow import Flow, flow_of
from autotune.estimate.launches import device_bytes, fitting_blocks, found_resources
from autotune.estimate.sass import Pipe, read_code
from autotune.estimate.warps import Costs, Step, clocks_alone, clocks_of_round, steps_of
from autotune.gpus.rates import Rates, rates_of
from autotune.gpus.spec import DeviceSpec

ALU_CLOCKS = 2.0
"""That an instruction for integers, comparisons or conversions keeps its pipe of 16 lanes busy (Programming Guide)."""

_SELDOM = 0.02  # executions of a warp that are taken for none
_MOSTLY = 0.5 - 1e-6  # share of a loop's rounds


@dataclass(frozen=True)
class Phase:
    """A loop of a kernel without the loops within, or the code outside of all: rounds of a warp, clocks of one round.

    `alone`: with one block on the SM. `full`: with as many as fit.
    """

    rounds: float
    alone: float
    full: float
    loop: bool


@dataclass(frozen=True)
class Schedule:
    """Of one launch. `resident`: blocks on an SM for which `Phase.full` was found."""

    kernel: str
    resident: int
    phases: tuple[Phase, ...]
    instructions: float  # of a warp
    alu: float  # of them those of the pipe for integers, comparisons and conversions
    misfit: float  # share of the counts that the code's executions do not explain

    def clocks(self, blocks: int, loops: float = 1.0) -> float:
        """Of one block while `blocks` are on its SM. `loops`: its work over that of the mean block."""
        share = (blocks - 1) / (self.resident - 1) if self.resident > 1 else 0.0
        return sum(
            phase.rounds * (loops if phase.loop else 1.0) * (phase.alone + share * (phase.full - phase.alone))
            for phase in self.phases
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it back."""
        return {**asdict(self), "phases": [list(asdict(phase).values()) for phase in self.phases]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Schedule":
        return cls(**{**data, "phases": tuple(Phase(*values) for values in data["phases"])})


def schedules_of(
    cubin: Path, plan: LaunchPlan, resources: Sequence[KernelResources], counts: Sequence[Counts], spec: DeviceSpec
) -> tuple[Schedule, ...]:
    """The schedule of each launch of a plan. Takes a tenth of a second.

    Args:
        cubin: of the plan's kernels.
        plan: for the whole problem.
        resources: `kernel_resources` of it.
        counts: of each launch, in order.
        spec: the GPU.

    Raises:
        BuildError: the code cannot be read or followed.
        LaunchError: a launch has no resources, or does not fit on an SM.
    """
    codes = read_code(cubin, spec.compute_capability)
    sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
    found = []
    for launch, count in zip(plan.launches, counts, strict=True):
        blocks = working_blocks(launch, count)
        fitting = fitting_blocks(launch, found_resources(launch, resources), spec)
        resident = min(fitting, math.ceil(blocks / spec.sm_count))
        missing = device_bytes(launch, count, sizes) / max(count.sector_bytes, 1.0)
        if launch.kernel not in codes:
            raise BuildError(f"{cubin} has no code of kernel {launch.kernel}")
        code = codes[launch.kernel]
        found.append(schedule_of(code, count, blocks, launch.threads, resident, missing, spec))
    return tuple(found)


def schedule_of(
    code: Code, counts: Counts, blocks: int, threads: int, resident: int, missing: float, spec: DeviceSpec
) -> Schedule:
    """The schedule of a launch.

    Args:
        code: of the kernel.
        counts: of the launch.
        blocks: of the launch.
        threads: of a block.
        resident: blocks that are on an SM at once.
        missing: share of the sectors loaded that come from device memory, not from L2.
        spec: the GPU.

    Raises:
        BuildError: no way leads through the code.
    """
    warps = math.ceil(threads / spec.warp_size)
    flow = flow_of(code, counts, blocks * warps)
    executed = [
        (times, instruction)
        for block, times in zip(flow.blocks, flow.executions, strict=True)
        for instruction in code[block.begin : block.end]
    ]
    words = blocks * warps * sum(times * i.words for times, i in executed if i.kind in ("shared load", "shared store"))
    conflicts = counts.wavefronts / words if words else 1.0
    kernel = _Kernel(code, flow, counts, resident, warps, conflicts, missing, spec)
    return Schedule(
        counts.kernel, resident, tuple(kernel.phase(own, head) for head, own in _paths(flow)),
        sum(times for times, _ in executed), sum(times for times, i in executed if i.pipe == "alu"), flow.misfit,
    )  # fmt: skip


def _paths(flow: Flow) -> list[tuple[int | None, list[int]]]:
    """For each loop its head and the live blocks that are in no loop within it; None: outside of all loops."""
    live = [i for i, times in enumerate(flow.executions) if times > _SELDOM]
    found: list[tuple[int | None, list[int]]] = []
    taken: set[int] = set()
    for loop in loops_of(flow.blocks, live):
        own = [i for i in loop.blocks if i not in taken]
        taken.update(own)
        if loop.head in own:
            found.append((loop.head, own))
    found.append((None, [i for i in live if i not in taken]))
    return [(head, own) for head, own in found if own]


@dataclass(frozen=True)
class _Kernel:
    """What all phases share."""

    code: Code
    flow: Flow
    counts: Counts
    resident: int
    warps: int
    conflicts: float  # passes through shared memory over words
    missing: float
    spec: DeviceSpec

    def phase(self, own: Sequence[int], head: int | None) -> Phase:
        """Of the blocks `own`; of a loop that begins at `head`, or of none."""
        blocks, executions = self.flow.blocks, self.flow.executions
        rounds = 1.0 if head is None else executions[head]
        path = [i for i in own if executions[i] >= _MOSTLY * rounds] or list(own)
        body = [instruction for i in path for instruction in self.code[blocks[i].begin : blocks[i].end]]
        rounds *= sum(executions[i] * blocks[i].size for i in own) / (rounds * len(body))
        schedulers = rates_of(self.spec).schedulers
        single = steps_of(body, self.costs(min(schedulers, self.warps)))
        several = steps_of(body, self.costs(min(schedulers, self.warps * self.resident)))
        each = math.ceil(self.warps / schedulers)  # warps of a block on a scheduler
        together = max(1.0, self.warps * self.resident / schedulers / each)  # blocks of that many
        if head is None:
            alone = clocks_alone(single)
            return Phase(rounds, alone, max(alone, each * together * _busiest(several)), loop=False)
        alone = clocks_of_round(single, 1, each)
        return Phase(rounds, alone, alone if self.resident == 1 else _between(several, together, each), loop=True)

    def costs(self, sharing: int) -> Costs:
        """`sharing`: schedulers that use what belongs to the whole SM at the same time."""
        spec, counts, rates = self.spec, self.counts, rates_of(self.spec)
        lanes = spec.fp32_tflops * 1e12 / (2.0 * spec.sm_count * spec.clock_mhz * 1e6)
        moved = 32.0 * sharing / rates.port_bytes
        warp = spec.warp_size * rates.schedulers
        busy: dict[Pipe, float] = {
            "fma": warp / lanes, "integer multiply": ALU_CLOCKS, "alu": ALU_CLOCKS, "half": 2.0 * warp / rates.fp16,
            "special": warp / rates.special,
            "tensor": rates.schedulers * MMA_FLOPS * spec.sm_count * spec.clock_mhz * 1e6 / tensor_rate(spec),
            "exchange": sharing * spec.warp_size / rates.shuffles,
            "load": moved * counts.sectors_loaded / max(counts.loads, 1.0),
            "copy": moved * counts.sectors_loaded / max(counts.loads, 1.0),
            "store": moved * counts.sectors_stored / max(counts.global_stores, 1.0),
        }  # fmt: skip
        loaded = rates.l2_latency + self.missing * (rates.dram_latency - rates.l2_latency)
        latency: dict[Pipe, float] = {
            "exchange": rates.shared_latency, "special": rates.special_latency, "load": loaded,
        }  # fmt: skip
        return Costs(busy, latency, self.conflicts * sharing * 128.0 / rates.shared_bytes, loaded)


def _between(steps: Sequence[Step], blocks: float, warps: int) -> float:
    """Clocks of a round with a broken number of blocks on a scheduler: some schedulers have one more than others."""
    fewer = clocks_of_round(steps, math.floor(blocks), warps)
    share = blocks - math.floor(blocks)
    return fewer if share == 0.0 else fewer + share * (clocks_of_round(steps, math.ceil(blocks), warps) - fewer)


def _busiest(steps: Sequence[Step]) -> float:
    sums: dict[int, float] = {}
    for step in steps:
        sums[step.pipe] = sums.get(step.pipe, 0.0) + step.busy
    return max(float(len(steps)), *sums.values())


def tensor_rate(spec: DeviceSpec) -> float:
    """Operations a second that `mma.sync` reaches."""
    rates: Rates = rates_of(spec)
    per_clock = 2.0 * rates.tensor * spec.sm_count * spec.clock_mhz * 1e6
    return rates.mma_share * (per_clock or spec.tensor_tflops * 1e12)
