"""Running a plan on arrays in the host's memory: on the emulator, or on a GPU with copies there and back."""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import numpy as np

from autotune.answers.best import Best
from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import numpy_dtype
from autotune.core.plan import LaunchPlan
from autotune.devices.driver import Driver
from autotune.devices.emulated import CpuDevice
from autotune.devices.prepared import Binary, Prepared
from autotune.devices.protocol import Program
from autotune.emulator.building import build_emulator
from autotune.gpus.spec import DeviceSpec
from autotune.ops.op import Arrays


class Runner(Protocol):
    """Runs plans whose buffers come from arrays, and go back to arrays; from any number of threads."""

    def run(self, found: Best, plan: LaunchPlan, images: Arrays, wanted: Collection[str]) -> Arrays:
        """The buffers named, after all steps of the plan.

        Raises:
            LaunchError: a step failed.
        """


class HostRunner:
    """The emulator. A run takes all cores, and the emulator's buffers are its own, so runs go one after the other."""

    def __init__(self, spec: DeviceSpec) -> None:
        self._device = CpuDevice(spec)
        self._programs: dict[str, Program] = {}
        self._lock = threading.Lock()

    def run(self, found: Best, plan: LaunchPlan, images: Arrays, wanted: Collection[str]) -> Arrays:
        with self._lock:
            key = found.source.hash
            if key not in self._programs:
                self._programs[key] = self._device.load(build_emulator(found.source, BuildCache()), plan)
            self._device.allocate(plan.buffers)
            for name, image in images.items():
                self._device.upload(name, image)
            self._device.run(self._programs[key], plan)
            return {name: self._device.download(name) for name in wanted}


class GpuRunner:
    """A GPU. Each run has memory of its own, and waits for the copy back."""

    def __init__(self, driver: Driver, gpu: int, binary: Callable[[int, Best], Binary]) -> None:
        self._driver, self._gpu, self._binary = driver, gpu, binary

    def run(self, found: Best, plan: LaunchPlan, images: Arrays, wanted: Collection[str]) -> Arrays:
        prepared = Prepared(self._driver, self._gpu, self._binary(self._gpu, found), plan, [*images])
        held = list[int]()
        with self._driver.current(self._gpu):
            try:
                for nbytes in (*(image.nbytes for image in images.values()), prepared.workspace_bytes):
                    held.append(self._driver.allocate(nbytes))
                for address, image in zip(held, images.values(), strict=False):
                    self._driver.copy_in(address, image.ctypes.data, image.nbytes)
                prepared(held, 0)
                return self._fetched(plan, dict(zip(images, held, strict=False)), wanted)
            finally:
                for address in held:
                    self._driver.free(address)

    def _fetched(self, plan: LaunchPlan, places: Mapping[str, int], wanted: Collection[str]) -> Arrays:
        results: Arrays = {}
        for buffer in plan.buffers:
            if buffer.name in wanted:
                result = np.empty(buffer.elements, numpy_dtype(buffer.dtype))
                self._driver.copy_out(result.ctypes.data, places[buffer.name], buffer.nbytes)
                results[buffer.name] = result
        return results
