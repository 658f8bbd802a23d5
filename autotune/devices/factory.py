"""From a device's name to the device: found here, opened in whichever process is to own it. One class for each kind."""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from autotune.core import settings
from autotune.core.errors import DeviceMissing, UsageError
from autotune.core.extras import install
from autotune.devices.protocol import Device
from autotune.gpus.cap import NO_CAP, Cap
from autotune.gpus.identity import DEVICES, DeviceIdentity, DeviceName, parse_device
from autotune.gpus.known import gpu
from autotune.gpus.nvml import why_no_energy
from autotune.gpus.present import bus_id, present_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.gpus.surroundings import surroundings


class DeviceOpener(Protocol):
    """Describes a device; picklable, so that the worker process can open it."""

    @classmethod
    def meant(cls, name: DeviceName, target: str | None) -> Self:
        """The device that a name of this kind is for. `target`: the GPU to estimate for, as asked beside the name.

        Raises:
            DeviceMissing: it is not on this machine.
            UsageError: the name or the target makes no sense, or no name is for such a device.
        """
        raise UsageError(f"no device is found by a name such as {name} (target {target})")

    def open(self) -> Device:
        """The device itself; its libraries are imported here.

        Raises:
            DeviceMissing: it is not on this machine.
        """

    def foresee(self) -> tuple[DeviceIdentity, Mapping[str, str]] | None:
        """The identity and the environment that the device will have once it is open; None where only it can tell."""
        return None

    def why_no_energy(self) -> str:
        """Why it will not tell what energy kernels take, as far as that is known before it is open; else empty."""
        return ""

    @property
    def estimates(self) -> bool:
        """Whether its times are modelled, on cores that the search needs as well."""
        return False

    @property
    def gpu_index(self) -> int | None:
        """The GPU that it occupies, as the driver counts them."""
        return None

    def capped(self, cap: Cap) -> Self:
        """The same device while it is held to a cap (by `autotune.gpus.capped`).

        Raises:
            UsageError: it is no device that can be held to one.
        """
        if cap:
            raise UsageError(f"a GPU can be held to {cap}, and this is none: leave out --clock and --power-limit")
        return self


@dataclass(frozen=True)
class CudaOpener(DeviceOpener):
    """A GPU on its primary context, through PyCUDA."""

    index: int = 0
    cap: Cap = NO_CAP

    @classmethod
    def meant(cls, name: DeviceName, target: str | None) -> Self:
        if target is not None:
            raise UsageError(f"--target goes with --device cpu; on {name} times are measured, for that GPU itself")
        present = present_gpu(name.index)
        if name.gpu is not None:
            wanted = gpu(name.gpu).name
            if present is None or wanted != present.name:
                raise DeviceMissing(f"no {wanted} here; --device cpu --target {wanted} estimates for it")
        if present is None:
            raise DeviceMissing(
                f"no NVIDIA GPU {name.index} here; --device cpu uses the emulator, with estimates for --target"
            )
        if not has_pycuda():
            raise DeviceMissing(f"PyCUDA is not installed: {install('gpu')}, or use --device cpu")
        return cls(name.index)

    def open(self) -> Device:
        from autotune.devices.cuda import CudaDevice

        return CudaDevice(self.index, self.cap)

    def capped(self, cap: Cap) -> Self:
        return replace(self, cap=cap)

    def foresee(self) -> tuple[DeviceIdentity, Mapping[str, str]] | None:
        spec = present_gpu(self.index)
        return None if spec is None else (
            DeviceIdentity("cuda", spec, self.cap), surroundings(spec, bus_id(self.index)),
        )  # fmt: skip

    def why_no_energy(self) -> str:
        return why_no_energy(bus_id(self.index))

    @property
    def gpu_index(self) -> int:
        return self.index


@dataclass(frozen=True)
class CpuOpener(DeviceOpener):
    """The emulator on `threads` OS threads; `spec` is the GPU whose times are estimated."""

    spec: DeviceSpec
    threads: int | None = None

    @classmethod
    def meant(cls, name: DeviceName, target: str | None) -> Self:
        if None not in {name.gpu, target}:
            raise UsageError(f"--device {name} names the GPU to estimate for already: leave out --target {target}")
        wanted, present = name.gpu or target, present_gpu()
        return cls(present if wanted is None and present is not None else gpu(wanted or settings.target()))

    def open(self) -> Device:
        from autotune.devices.emulated import CpuDevice

        return CpuDevice(self.spec, self.threads)

    def foresee(self) -> tuple[DeviceIdentity, Mapping[str, str]]:
        device = self.open()
        return device.identity, device.environment()

    @property
    def estimates(self) -> bool:
        return True


def choose_device(device: str | None, target: str | None = None) -> DeviceOpener:
    """The device to run on: as asked, else `AUTOTUNE_DEVICE`, else the GPU that is here, else the emulator.

    Args:
        device: `cuda`, `cuda:1`, `cpu`, `cpu:h200` (as `cpu` with that target), or the name of the GPU that is here.
        target: on `cpu`, the GPU to estimate for; default the GPU that is here, else `AUTOTUNE_TARGET` or h200.

    Raises:
        DeviceMissing: no such GPU here, or no PyCUDA.
        UsageError: not a device's name.
    """
    wanted = settings.device() if device is None or device == "" else device
    if wanted is None:
        wanted = "cuda" if target is None and present_gpu() is not None and has_pycuda() else "cpu"
    meant = parse_device(wanted)
    if meant.cap:
        raise UsageError(
            f"a search holds a GPU to {meant.cap} with --clock and --power-limit, not by the name {wanted!r}"
        )
    opener = DEVICES[meant.kind].opener
    if opener is None:
        raise UsageError(f"no search runs on {wanted!r}; the devices are cuda, cuda:1, cpu and the GPU that is here")
    module, _, name = opener.partition(":")
    found: DeviceOpener = getattr(importlib.import_module(module), name).meant(meant, target)
    return found


def has_pycuda() -> bool:
    """Whether PyCUDA is installed."""
    return importlib.util.find_spec("pycuda") is not None
