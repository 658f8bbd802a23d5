"""Making a device from a plain description, in whichever process is to own it: one class here for each device."""

from dataclasses import dataclass
from typing import Protocol

from autotune.devices.protocol import Device
from autotune.gpus.spec import DeviceSpec


class DeviceOpener(Protocol):
    """Describes a device; picklable, so that the worker process can open it."""

    def open(self) -> Device:
        """The device itself; its libraries are imported here.

        Raises:
            DeviceMissing: it is not on this machine.
        """

    @property
    def estimates(self) -> bool:
        """Whether its times are modelled, on cores that the search needs as well."""
        return False

    @property
    def gpu_index(self) -> int | None:
        """The GPU that it occupies, as the driver counts them."""
        return None


@dataclass(frozen=True)
class CudaOpener(DeviceOpener):
    """A GPU on its primary context, through PyCUDA."""

    index: int = 0

    def open(self) -> Device:
        from autotune.devices.cuda import CudaDevice

        return CudaDevice(self.index)

    @property
    def gpu_index(self) -> int:
        return self.index


@dataclass(frozen=True)
class CpuOpener(DeviceOpener):
    """The emulator on `threads` OS threads; `spec` is the GPU whose times are estimated."""

    spec: DeviceSpec
    threads: int | None = None

    def open(self) -> Device:
        from autotune.devices.emulated import CpuDevice

        return CpuDevice(self.spec, self.threads)

    @property
    def estimates(self) -> bool:
        return True
