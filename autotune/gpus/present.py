"""Which GPU is in this machine, asked of the driver library alone: no package, no context, no compiler."""

import ctypes
from dataclasses import dataclass, replace
from functools import cache

from autotune.gpus.known import by_title, short_name
from autotune.gpus.spec import DeviceSpec

# CUdevice_attribute in cuda.h.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "registers_per_block": 12,
    "clock_khz": 13,
    "sm_count": 16,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "major": 75,
    "minor": 76,
    "shared_memory_per_sm": 81,
    "registers_per_sm": 82,
    "max_shared_memory": 97,
    "max_blocks_per_sm": 106,
    "reserved_shared_memory": 111,
}

# fp32 lanes and dense fp16 tensor multiply-adds a clock, of one SM, by compute capability (architecture whitepapers).
_RATES = {
    70: (64, 512), 75: (64, 512), 80: (64, 1024), 86: (128, 256), 87: (128, 512), 89: (128, 256),
    90: (128, 2048), 100: (128, 4096), 103: (128, 4096), 110: (128, 2048), 120: (128, 256), 121: (128, 256),
}  # fmt: skip

_FAMILY_ARCH = {90: "sm_90a", 100: "sm_100a", 103: "sm_103a"}


@dataclass(frozen=True)
class _Reading:
    """What the driver says of one device."""

    title: str
    memory_bytes: int
    attributes: dict[str, int]


def present_gpu(index: int = 0) -> DeviceSpec | None:
    """The GPU with this index as the driver counts them, its limits as the driver reports them; None without one.

    Known models bring their published clocks and rates; those of others follow from the driver's attributes.
    """
    reading = _read(index)
    return None if reading is None else _spec(reading)


def gpu_count() -> int:
    """GPUs that the driver shows."""
    library = _driver()
    count = ctypes.c_int()
    if library is None or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def bus_id(index: int) -> str | None:
    """Where the GPU with this index sits: its PCI address, by which other libraries know it."""
    library = _driver()
    device, text = ctypes.c_int(), ctypes.create_string_buffer(64)
    if library is None or library.cuDeviceGet(ctypes.byref(device), index) != 0:
        return None
    return text.value.decode() if library.cuDeviceGetPCIBusId(text, len(text), device) == 0 else None


@cache
def driver_version() -> str | None:
    """The CUDA version that the installed driver supports ("13.0"); None without a driver."""
    library = _driver()
    version = ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


@cache
def _driver() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libcuda.so.1")
        return library if library.cuInit(0) == 0 else None
    except (OSError, AttributeError):
        return None


@cache
def _read(index: int) -> _Reading | None:
    library = _driver()
    device, memory, title = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    if library is None or index < 0 or library.cuDeviceGet(ctypes.byref(device), index) != 0:
        return None
    if library.cuDeviceGetName(title, len(title), device) != 0:
        return None
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    attributes = {name: _attribute(library, code, device) for name, code in _ATTRIBUTES.items()}
    return _Reading(title.value.decode(errors="replace"), memory.value, attributes)


def _attribute(library: ctypes.CDLL, code: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    return value.value if library.cuDeviceGetAttribute(ctypes.byref(value), code, device) == 0 else 0


def _spec(reading: _Reading) -> DeviceSpec:
    computed = _computed_spec(reading)
    known = by_title(reading.title)
    if known is None:
        return computed
    if known.sm_count != computed.sm_count:  # a slice of the model: it must not share the whole one's records
        return replace(computed, name=f"{known.name}-{computed.sm_count}sm")
    return replace(
        computed, name=known.name, arch=known.arch, clock_mhz=known.clock_mhz, bandwidth_gbs=known.bandwidth_gbs,
        fp32_tflops=known.fp32_tflops, tensor_tflops=known.tensor_tflops,
    )  # fmt: skip


def _computed_spec(reading: _Reading) -> DeviceSpec:
    said = reading.attributes
    capability = said["major"] * 10 + said["minor"]
    lanes, tensor = _RATES.get(capability, (128, 256))
    cycles = said["sm_count"] * said["clock_khz"] * 1e3  # SM cycles a second
    return DeviceSpec(
        name=short_name(reading.title),
        title=reading.title,
        arch=_FAMILY_ARCH.get(capability, f"sm_{capability}"),
        sm_count=said["sm_count"],
        max_shared_memory=said["max_shared_memory"],
        shared_memory_per_sm=said["shared_memory_per_sm"],
        l2_bytes=said["l2_bytes"],
        memory_bytes=reading.memory_bytes,
        clock_mhz=said["clock_khz"] // 1000,
        bandwidth_gbs=round(2 * said["memory_clock_khz"] * said["bus_bits"] / 8 / 1e6, 1),
        fp32_tflops=round(2 * lanes * cycles / 1e12, 1),
        tensor_tflops=round(2 * tensor * cycles / 1e12, 1),
        max_threads_per_sm=said["max_threads_per_sm"],
        max_blocks_per_sm=said["max_blocks_per_sm"],
        registers_per_sm=said["registers_per_sm"],
        max_threads_per_block=said["max_threads_per_block"],
        reserved_shared_memory=said["reserved_shared_memory"],
    )
