"""How an estimate is shown: the modelled time, what binds it, and each launch's occupancy and parts."""

from collections.abc import Iterator

from autotune.core.measurement import KernelResources
from autotune.core.words import format_ms
from autotune.estimate.examine import Estimated
from autotune.estimate.model import LaunchEstimate

Row = tuple[object, ...]

LAUNCH_COLUMNS = (
    "kernel", ">est. ms", "bound", "?>regs", "?>spills B", "?>smem B", ">blocks/SM", ">occupancy", "limited by",
    ">waves", ">flop/byte", "parts in µs, each alone",
)  # fmt: skip
"""Of `launch_rows`."""

_SHOWN_PARTS = 4


def headline(estimated: Estimated) -> str:
    """`0.0335 ms on NVIDIA H200, memory-bound; 84 operations a byte, the roofline's ridge is at 206`."""
    estimate = estimated.estimate
    return (
        f"{format_ms(estimate.ms)} ms on {estimated.spec.title} by a model, not measured; {estimate.bound}-bound; "
        f"{estimate.intensity:.3g} operations a byte of device memory, the roofline's ridge is at {estimate.ridge:.3g}"
    )


def launch_rows(estimated: Estimated) -> Iterator[Row]:
    """One row a launch. The parts are what would be needed if nothing else took time, the longest first."""
    for launch in estimated.estimate.launches:
        resources, limiter = _resources_of(estimated, launch)
        yield (
            launch.kernel, format_ms(1e3 * launch.seconds), _bound(launch),
            resources and resources.registers, resources and resources.spill_bytes,
            resources and resources.static_smem + resources.dynamic_smem,
            launch.blocks_per_sm, resources and f"{resources.occupancy:.0%}", limiter, f"{launch.waves:.3g}",
            f"{launch.flops / launch.nbytes:.3g}" if launch.nbytes else "", _parts(launch),
        )  # fmt: skip


def _bound(launch: LaunchEstimate) -> str:
    return f"{launch.bound}, waits" if launch.waiting else str(launch.bound)


def _parts(launch: LaunchEstimate) -> str:
    longest = sorted(launch.parts.items(), key=lambda part: -part[1])[:_SHOWN_PARTS]
    return ", ".join(f"{name} {1e6 * seconds:.3g}" for name, seconds in longest if seconds > 0.0)


def _resources_of(estimated: Estimated, launch: LaunchEstimate) -> tuple[KernelResources | None, str]:
    """Those of the kernel; where it is launched in several ways, of the one with as many blocks on an SM."""
    pairs = zip(estimated.resources, estimated.occupancies, strict=True)
    found = [(resources, occupancy) for resources, occupancy in pairs if resources.kernel == launch.kernel]
    fitting = [pair for pair in found if pair[1].blocks_per_sm == launch.blocks_per_sm] or found
    return (fitting[0][0], str(fitting[0][1].limiter)) if fitting else (None, "")
