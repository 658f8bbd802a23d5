"""What a record says of where it was measured, beside the GPU's identity."""

import platform
from collections.abc import Mapping

from autotune.gpus.nvml import driver_release, power_limit
from autotune.gpus.present import driver_version
from autotune.gpus.spec import DeviceSpec


def surroundings(spec: DeviceSpec, pci_bus_id: str | None) -> Mapping[str, str]:
    """GPU, driver, CUDA version of the driver, host, and the limit of power in force, whoever has set it."""
    limit = "" if pci_bus_id is None else power_limit(pci_bus_id)
    return {
        "device": spec.title,
        "driver": driver_release() or "unknown",
        "cuda": driver_version() or "unknown",
        "host": platform.node(),
        **({"power_limit": limit} if limit else {}),
    }
