"""Devices that compare by themselves as a GPU does, with the same kernels on the emulator."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.errors import BuildError, LaunchError
from autotune.core.plan import Buffer, LaunchPlan, Zero, pack_arguments
from autotune.devices.comparison_tables import BETWEEN
from autotune.devices.emulated import CpuDevice
from autotune.devices.protocol import Program
from autotune.emulator.building import build_emulator
from autotune.emulator.library import EmulatorLibrary
from autotune.families.source import KernelSource
from autotune.gpus.known import gpu
from tests.device_doubles import PythonDevice, PythonProgram

PLENTY = 1 << 30
OURS = "comparison: "


class Watched:
    """Put before a device: `host` has its buffers that were downloaded, or compared with the host's."""

    host: list[str]

    def download(self, name: str) -> NDArray[Any]:
        if not name.startswith(OURS):
            self.host.append(name)
        found: NDArray[Any] = super().download(name)  # type: ignore[misc] # the device's
        return found

    def equals(self, name: str, data: NDArray[Any]) -> bool:
        self.host.append(name)
        same: bool = super().equals(name, data)  # type: ignore[misc]
        return same


class ComparingCpu(Watched, CpuDevice):
    """The emulator, with so many `free` bytes."""

    def __init__(self, free: int = PLENTY, *, builds: bool = True) -> None:
        super().__init__(gpu("h200"), threads=2)
        self.free, self.builds = free, builds
        self.host: list[str] = []
        self.uploads: list[str] = []

    def build(self, source: KernelSource) -> Artifact:
        if not self.builds:
            raise BuildError("there is no compiler")
        return build_emulator(source, BuildCache())

    def free_bytes(self) -> int:
        return self.free

    def upload(self, name: str, data: NDArray[Any]) -> None:
        self.uploads.append(name)
        super().upload(name, data)


@dataclass
class Comparer(PythonProgram):
    library: EmulatorLibrary


def _nothing(views: dict[str, NDArray[Any]], storages: dict[str, NDArray[Any]]) -> None:
    pass


@dataclass
class ComparingPython(Watched, PythonDevice):
    """Python kernels, compared by emulated ones. `full`: it has no memory for what they compare with; `silent`: they
    leave no records."""

    full: bool = False
    silent: bool = False
    host: list[str] = field(default_factory=list)

    def build(self, source: KernelSource) -> Artifact:
        return build_emulator(source, BuildCache())

    def free_bytes(self) -> int:
        return PLENTY

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        if self.full and any(buffer.name.startswith(OURS) for buffer in buffers):
            raise LaunchError("there is no more memory")
        super().allocate(buffers)

    def load(self, artifact: Artifact, plan: LaunchPlan) -> PythonProgram:
        if BETWEEN in plan.kernels:
            return Comparer(_nothing, EmulatorLibrary(artifact.path))
        return super().load(artifact, plan)

    def run(self, program: Program, plan: LaunchPlan) -> float | None:
        if not isinstance(program, Comparer):
            assert isinstance(program, PythonProgram)
            return super().run(program, plan)
        for name, before in plan.restores:
            self._buffers[name][1][...] = self._buffers[before][1]
        addresses = {name: array.ctypes.data for name, (_, array) in self._buffers.items()}
        for step in () if self.silent else plan.steps:
            if isinstance(step, Zero):
                self._buffers[step.buffer][1].view(np.uint8)[...] = 0
            else:
                failure = program.library.launch(step, pack_arguments(step.args, addresses), 1)
                assert failure is None, failure
        return None
