"""Clock, power and temperature, asked of NVIDIA's management library; everything is None where it cannot tell."""

import ctypes
from dataclasses import dataclass
from functools import cache

_SM_CLOCK = 1  # NVML_CLOCK_SM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU


@dataclass(frozen=True)
class Reading:
    """The state of a GPU at one moment."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


def read_state(pci_bus_id: str) -> Reading:
    """The GPU's state now; a few microseconds once the library is loaded."""
    library = _library()
    handle = ctypes.c_void_p()
    if library is None:
        return Reading()
    if library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(handle)) != 0:
        return Reading()
    clock, power, temperature = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    clock_ok = library.nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(clock)) == 0
    power_ok = library.nvmlDeviceGetPowerUsage(handle, ctypes.byref(power)) == 0
    temperature_ok = library.nvmlDeviceGetTemperature(handle, _GPU_SENSOR, ctypes.byref(temperature)) == 0
    return Reading(
        clock_mhz=float(clock.value) if clock_ok else None,
        power_w=power.value / 1000 if power_ok else None,
        temperature_c=float(temperature.value) if temperature_ok else None,
    )


@cache
def driver_release() -> str | None:
    """The driver's own version ("580.159.04")."""
    library = _library()
    text = ctypes.create_string_buffer(96)
    if library is None or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return None
    return text.value.decode(errors="replace")


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
