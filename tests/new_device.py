"""A device as somebody might add it: one file, and a row in the catalogue, which here the file adds itself.

It is the emulator under another name. Processes that run kernels import this file by unpickling its opener.
"""

from dataclasses import dataclass
from typing import Self

from autotune.devices.emulated import CpuDevice
from autotune.devices.factory import DeviceOpener
from autotune.devices.protocol import Device
from autotune.gpus.identity import DEVICES, DeviceIdentity, DeviceName, DeviceType
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec

ROW = {"toy": DeviceType("tests.new_device:ToyOpener", frozenset({"estimated"}))}
if "toy" not in DEVICES:  # tests add and remove it; in processes that run kernels it stays
    DEVICES.update(ROW)


class ToyDevice(CpuDevice):
    """Emulates, and says that it is a toy."""

    def __init__(self, spec: DeviceSpec) -> None:
        super().__init__(spec, threads=1)
        self.identity = DeviceIdentity("toy", spec)


@dataclass(frozen=True)
class ToyOpener(DeviceOpener):
    spec: DeviceSpec

    @classmethod
    def meant(cls, name: DeviceName, target: str | None) -> Self:
        return cls(gpu(name.gpu or target or "a10"))

    def open(self) -> Device:
        return ToyDevice(self.spec)

    @property
    def estimates(self) -> bool:
        return True
