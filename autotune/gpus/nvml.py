"""Clock, power, energy and temperature, asked of NVIDIA's management library; everything is None where it cannot tell.

Names and codes are those of its reference (NVML API Reference Manual).
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

_SM_CLOCK = 1  # NVML_CLOCK_SM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_MIG_ENABLED = 1  # NVML_DEVICE_MIG_ENABLE

OK, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 0, 2, 3, 4
"""Of `nvmlReturn_t`."""


@dataclass(frozen=True)
class Reading:
    """The state of a GPU at one moment."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


class ManagedGpu:
    """A GPU as the library knows it."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library, self._handle = library, handle

    def call(self, function: str, *arguments: Any) -> int:
        """`nvmlReturn_t` of a function of the library; one that this version lacks is not supported."""
        try:
            return int(getattr(self._library, function)(self._handle, *arguments))
        except AttributeError:
            return NOT_SUPPORTED

    def number(self, function: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int | None:
        """What a function writes to its last argument; None where it does not succeed."""
        value = kind()
        return int(value.value) if self.call(function, *arguments, ctypes.byref(value)) == OK else None

    def pair(self, function: str) -> tuple[int, int] | None:
        """The two numbers that a function writes; None where it does not succeed."""
        one, other = ctypes.c_uint(), ctypes.c_uint()
        done = self.call(function, ctypes.byref(one), ctypes.byref(other)) == OK
        return (one.value, other.value) if done else None

    def numbers(self, function: str, *arguments: Any) -> tuple[int, ...]:
        """The list that a function fills, whose length is asked for first; empty where it does not succeed."""
        count = ctypes.c_uint(0)
        self.call(function, *arguments, ctypes.byref(count), None)  # refuses, and tells the length
        values = (ctypes.c_uint * count.value)()
        if count.value == 0 or self.call(function, *arguments, ctypes.byref(count), values) != OK:
            return ()
        return tuple(values[: count.value])

    def said(self, status: int) -> str:
        """What a status means, in the library's words."""
        self._library.nvmlErrorString.restype = ctypes.c_char_p
        text = self._library.nvmlErrorString(status)
        return text.decode(errors="replace") if text else f"status {status}"

    @property
    def state(self) -> Reading:
        clock = self.number("nvmlDeviceGetClockInfo", _SM_CLOCK)
        temperature = self.number("nvmlDeviceGetTemperature", _GPU_SENSOR)
        return Reading(
            None if clock is None else float(clock), self.power_w, None if temperature is None else float(temperature)
        )

    @property
    def power_w(self) -> float | None:
        """What it draws: now, on the older models; on average over the last second from Ampere on."""
        milliwatts = self.number("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1000

    @property
    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded; from Volta on. It moves some ten times a second."""
        return self.number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)

    @property
    def divided(self) -> bool:
        """Whether it is cut into MIG instances, whose energy nobody tells apart."""
        modes = self.pair("nvmlDeviceGetMigMode")  # the present one, and that after a reset
        return modes is not None and modes[0] == _MIG_ENABLED

    @property
    def power_limits(self) -> tuple[float, float] | None:
        """The limit in force, whoever has set it, and the model's own, in watts."""
        now = self.number("nvmlDeviceGetEnforcedPowerLimit")
        usual = self.number("nvmlDeviceGetPowerManagementDefaultLimit")
        return None if now is None or usual is None else (now / 1000, usual / 1000)


def managed_gpu(pci_bus_id: str) -> ManagedGpu | None:
    """The GPU in this slot; None where the library is not there, or does not know it."""
    library = _library()
    handle = ctypes.c_void_p()
    if library is None:
        return None
    if library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(handle)) != OK:
        return None
    return ManagedGpu(library, handle)


def read_state(pci_bus_id: str) -> Reading:
    """The GPU's state now; a few microseconds once the library is loaded."""
    found = managed_gpu(pci_bus_id)
    return Reading() if found is None else found.state


def power_limit(pci_bus_id: str) -> str:
    """The limit of power in force, for a record: `400 W of 700`; empty where it cannot be told."""
    found = managed_gpu(pci_bus_id)
    limits = None if found is None else found.power_limits
    return "" if limits is None else f"{limits[0]:.0f} W of {limits[1]:.0f}"


def why_no_energy(pci_bus_id: str | None) -> str:
    """Why the energy of a GPU's kernels cannot be measured; empty where it can."""
    found = None if pci_bus_id is None else managed_gpu(pci_bus_id)
    if found is None:
        return "NVIDIA's management library (libnvidia-ml.so.1) is not here or does not know this GPU"
    if found.divided:
        return "it is divided (MIG), and its energy is that of all its parts together"
    return "it tells neither its energy nor its power" if found.energy_mj is None and found.power_w is None else ""


@cache
def driver_release() -> str | None:
    """The driver's own version ("580.159.04")."""
    library = _library()
    text = ctypes.create_string_buffer(96)
    if library is None or library.nvmlSystemGetDriverVersion(text, len(text)) != 0:
        return None
    return text.value.decode(errors="replace")


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == OK else None
    except (OSError, AttributeError):
        return None
