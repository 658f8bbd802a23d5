"""Making a device from a plain description, in whichever process is to own it."""

from dataclasses import dataclass
from typing import Protocol

from autotune.devices.protocol import Device
from autotune.gpus.spec import DeviceSpec


class DeviceOpener(Protocol):
    """Describes a device; picklable, so that the worker process can open it."""

    def open(self) -> Device:
        """The device itself.

        Raises:
            DeviceMissing: it is not on this machine.
        """


@dataclass(frozen=True)
class CudaOpener:
    """The GPU with this index, as the driver counts them."""

    index: int = 0

    def open(self) -> Device:
        """A CUDA device on its primary context; imports PyCUDA."""
        from autotune.devices.cuda import CudaDevice

        return CudaDevice(self.index)


@dataclass(frozen=True)
class CpuOpener:
    """The emulator on `threads` OS threads; `spec` is the GPU whose times are estimated."""

    spec: DeviceSpec
    threads: int | None = None

    def open(self) -> Device:
        from autotune.devices.emulated import CpuDevice

        return CpuDevice(self.spec, self.threads)
