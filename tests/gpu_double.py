"""A device that claims to be a GPU: takes real cubins, computes `lower_half` itself, and makes up their times."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compilers.artifact import Artifact
from autotune.core.errors import LaunchError
from autotune.core.measurement import Energy, Timing
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem
from autotune.devices.factory import DeviceOpener
from autotune.devices.protocol import Device, TimingBudget
from tests.device_doubles import PythonDevice, PythonProgram, right


@dataclass
class SourceProgram(PythonProgram):
    """A program with the constants of its source, which say how long it takes and what goes wrong."""

    constants: Mapping[str, int]


@dataclass
class GpuDouble(PythonDevice):
    """`SIZE` in a source is its time in ms; FAULT 1 fails a launch, 2 ends the process, 3 hangs."""

    log: Path | None = None
    watts: float = 700.0  # of a kernel whose SIZE is 10; slower ones draw less, so that they take less energy, too

    def environment(self) -> Mapping[str, str]:
        self._say("opened")
        return {"driver": "580.1", "device": "a double"}

    def load(self, artifact: Artifact, plan: LaunchPlan) -> SourceProgram:
        assert artifact.kind == "cubin"
        assert artifact.path.read_bytes()[:4] == b"\x7fELF"
        found = re.findall(r"constexpr int (\w+) = (\d+);", artifact.source_path.read_text())
        return SourceProgram(right, {name: int(value) for name, value in found})

    def run(self, program: PythonProgram, plan: LaunchPlan) -> float | None:
        assert isinstance(program, SourceProgram)
        fault = program.constants["FAULT"]
        self._say(f"run {program.constants['SIZE']} {fault}")
        if fault == 1:
            raise LaunchError("an illegal memory access was encountered")
        if fault == 2:
            os.abort()
        while fault == 3:
            time.sleep(0.01)
        x, y = (self._buffers[name][1].reshape(16, 16) for name in ("x", "y"))
        y[...] = np.tril(x * np.float32(0.5))
        return None

    def time(self, program: PythonProgram, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        assert isinstance(program, SourceProgram)
        self._say(f"time {program.constants['SIZE']} below {budget.give_up_above_ms}")
        ms = float(program.constants["SIZE"])
        return Timing("measured", ms, ms, ms, ms, 7, "made up")

    def why_no_energy(self) -> str:
        return "" if self.watts else "it has no counter"

    def idle_power_w(self) -> float:
        self._say("idle")
        return 80.0

    def energy(self, program: PythonProgram, plan: LaunchPlan, seconds: float) -> Energy:
        assert isinstance(program, SourceProgram)
        size = program.constants["SIZE"]
        self._say(f"meter {size} for {seconds}")
        watts = self.watts / (size / 10) ** 1.5
        return Energy(watts * size, watts, float(size), 10, seconds, "made up")

    def _say(self, text: str) -> None:
        assert self.log is not None
        with self.log.open("a") as file:
            file.write(text + "\n")


@dataclass(frozen=True)
class GpuDoubleOpener(DeviceOpener):
    problem: Problem
    log: Path
    watts: float = 700.0

    def open(self) -> Device:
        device: Any = GpuDouble(self.problem, "cuda", log=self.log, watts=self.watts)
        return device  # type: ignore[no-any-return]
