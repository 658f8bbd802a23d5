"""What a launch has and asks for: its resources, the blocks of it that fit on an SM, bytes of device memory."""

import math
from collections.abc import Mapping, Sequence

from autotune.core.errors import LaunchError
from autotune.core.measurement import KernelResources
from autotune.core.plan import Launch, ScalarArg
from autotune.estimate.counts import Counts
from autotune.gpus.spec import DeviceSpec


def fitting_blocks(launch: Launch, resources: KernelResources, spec: DeviceSpec) -> int:
    """Blocks of a launch that fit on an SM.

    Raises:
        LaunchError: not one does.
    """
    warps = math.ceil(launch.threads / spec.warp_size)
    fitting = round(resources.occupancy * spec.max_threads_per_sm / (warps * spec.warp_size))
    if fitting < 1:
        raise LaunchError(f"kernel {launch.kernel} does not fit on an SM of {spec.title}")
    return fitting


def device_bytes(launch: Launch, counts: Counts, sizes: Mapping[str, int]) -> float:
    """Bytes of device memory: each buffer once at most, the rest is found in L2."""
    storages = dict.fromkeys(arg.storage for arg in launch.args if not isinstance(arg, ScalarArg))
    return min(float(sum(sizes[name] for name in storages)), counts.sector_bytes)


def found_resources(launch: Launch, resources: Sequence[KernelResources]) -> KernelResources:
    """Those of the launch.

    Raises:
        LaunchError: there are none.
    """
    for found in resources:
        if (found.kernel, found.threads, found.dynamic_smem) == (launch.kernel, launch.threads, launch.smem):
            return found
    raise LaunchError(f"kernel {launch.kernel} is launched but its resources are not known")
