"""What a record says of where it was measured, beside the GPU's identity."""

import platform
from collections.abc import Mapping

from autotune.gpus.nvml import driver_release
from autotune.gpus.present import driver_version
from autotune.gpus.spec import DeviceSpec


def surroundings(spec: DeviceSpec) -> Mapping[str, str]:
    """GPU, driver, CUDA version of the driver, host."""
    return {
        "device": spec.title,
        "driver": driver_release() or "unknown",
        "cuda": driver_version() or "unknown",
        "host": platform.node(),
    }
