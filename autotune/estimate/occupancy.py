"""How many blocks of a kernel fit on an SM at once, and what keeps a candidate from running at all.

The rules are those of NVIDIA's occupancy calculator: registers are given to warps in units of 256, from the register
file's four partitions; shared memory is given to blocks in units of 128 bytes (256 before sm_80), the runtime's own
included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from autotune.compilers.artifact import Artifact, KernelReport
from autotune.core.measurement import KernelResources
from autotune.core.plan import Launch, LaunchPlan
from autotune.families.limits import MAX_BLOCK, MAX_GRID
from autotune.gpus.spec import DeviceSpec

Limiter = Literal["threads", "blocks", "registers", "shared memory"]

_REGISTER_UNIT = 256
_PARTITIONS = 4


@dataclass(frozen=True)
class Occupancy:
    """Blocks that are resident on one SM, what limits them, and resident warps over the most there can be (0 to 1)."""

    blocks_per_sm: int
    limiter: Limiter
    fraction: float


def occupancy(registers: int, smem: int, threads: int, spec: DeviceSpec) -> Occupancy:
    """Occupancy of a kernel: registers a thread, static and dynamic shared memory in bytes, threads a block."""
    warps = _ceil(threads, spec.warp_size)
    limits: dict[Limiter, int] = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size),
        "blocks": spec.max_blocks_per_sm,
        "registers": _blocks_by_registers(registers, warps, spec),
        "shared memory": _blocks_by_smem(smem, spec),
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, limiter, blocks * warps * spec.warp_size / spec.max_threads_per_sm)


def kernel_resources(plan: LaunchPlan, artifact: Artifact, spec: DeviceSpec) -> tuple[KernelResources, ...]:
    """Resources of each distinct launch (kernel, threads, dynamic shared memory) of a plan, in order."""
    reports = {report.kernel: report for report in artifact.kernels}
    launches = [launch for launch in plan.launches if launch.kernel in reports and launch.threads > 0]
    return tuple(dict.fromkeys(_resources(launch, reports[launch.kernel], spec) for launch in launches))


def static_failure(plan: LaunchPlan, artifact: Artifact, spec: DeviceSpec) -> str | None:
    """Why the device would refuse a launch of the plan, or run another thing than is written; None if neither."""
    reports = {report.kernel: report for report in artifact.kernels}
    for launch in plan.launches:
        for problem in _problems(launch, reports.get(launch.kernel), spec):
            return f"kernel {launch.kernel} {problem}"
    return None


def _problems(launch: Launch, report: KernelReport | None, spec: DeviceSpec) -> Iterator[str]:
    if report is None:
        yield "is launched but not in the compiled binary"
        return
    if report.loss:
        yield f"is not compiled as it is written: {report.loss}"
    for axis, size, most in zip("xyz", launch.block, MAX_BLOCK, strict=True):
        if not 1 <= size <= most:
            yield f"has {size} threads along {axis}; 1 to {most} are allowed"
    for axis, size, most in zip("xyz", launch.grid, MAX_GRID, strict=True):
        if not 1 <= size <= most:
            yield f"has {size} blocks along {axis}; 1 to {most} are allowed"
    if launch.threads > spec.max_threads_per_block:
        yield f"asks for {launch.threads} threads a block; {spec.title} allows {spec.max_threads_per_block}"
    smem = report.static_smem + launch.smem
    if smem > spec.max_shared_memory:
        parts = f" ({report.static_smem} static + {launch.smem} dynamic)" if report.static_smem else ""
        yield f"asks for {smem} bytes of shared memory{parts}; {spec.title} allows {spec.max_shared_memory}"
    needed = _registers_checked(report.registers, _ceil(launch.threads, spec.warp_size), spec)
    if needed > spec.registers_per_sm:
        yield (
            f"needs {needed} registers a block ({report.registers} a thread, {launch.threads} threads); "
            f"{spec.title} has {spec.registers_per_sm}"
        )


def _resources(launch: Launch, report: KernelReport, spec: DeviceSpec) -> KernelResources:
    found = occupancy(report.registers, report.static_smem + launch.smem, launch.threads, spec)
    return KernelResources(
        kernel=launch.kernel,
        registers=report.registers,
        spill_bytes=report.spill_bytes,
        static_smem=report.static_smem,
        dynamic_smem=launch.smem,
        threads=launch.threads,
        occupancy=round(found.fraction, 4),
    )


def _registers_per_warp(registers: int, spec: DeviceSpec) -> int:
    return _ceil(registers * spec.warp_size, _REGISTER_UNIT) * _REGISTER_UNIT


def _registers_checked(registers: int, warps: int, spec: DeviceSpec) -> int:
    # The hardware's check of a launch rounds the block's warps up to the partitions.
    return _registers_per_warp(registers, spec) * _ceil(warps, _PARTITIONS) * _PARTITIONS


def _blocks_by_registers(registers: int, warps: int, spec: DeviceSpec) -> int:
    if registers == 0:
        return spec.max_blocks_per_sm
    if _registers_checked(registers, warps, spec) > spec.registers_per_sm:
        return 0
    warps_per_partition = spec.registers_per_sm // _PARTITIONS // _registers_per_warp(registers, spec)
    return warps_per_partition * _PARTITIONS // warps


def _blocks_by_smem(smem: int, spec: DeviceSpec) -> int:
    unit = 128 if spec.compute_capability >= 80 else 256
    taken = _ceil(smem + spec.reserved_shared_memory, unit) * unit
    if smem > spec.max_shared_memory:
        return 0
    return spec.shared_memory_per_sm // taken if taken else spec.max_blocks_per_sm


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)
