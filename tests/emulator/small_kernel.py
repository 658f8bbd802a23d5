"""Runs a small kernel written in a test: for headers that are tested alone, on the emulator and again on a GPU."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.candidate import make_candidate
from autotune.core.dtypes import DTYPES, numpy_dtype
from autotune.core.plan import Arg, Buffer, Launch, LaunchPlan, PointerArg, TensorMapArg
from autotune.core.resources import resource_root
from autotune.devices.emulated import CpuDevice
from autotune.devices.protocol import Device
from autotune.emulator.building import build_emulator
from autotune.families.includes import collect_includes
from autotune.families.source import KernelSource
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

_NAMES = {numpy_dtype(name): name for name in DTYPES}


class SmallKernel:
    """`body` defines `extern "C" __global__ void test(...)`, whose parameters are pointers to the buffers in order,
    then the tensor maps that `maps` describes, if any. One block runs it, or a grid of `blocks`.

    `emulated` is False where tests/gpu runs the tests of wrappers once more.
    """

    emulated: ClassVar[bool] = True

    def __init__(
        self,
        body: str,
        cache: BuildCache,
        *,
        threads: int | tuple[int, int, int] = 32,
        blocks: tuple[int, int, int] = (1, 1, 1),
        cluster: tuple[int, int, int] = (1, 1, 1),
        smem: int = 0,
        maps: Sequence[TensorMapArg] = (),
    ) -> None:
        self.body, self.cache, self.blocks, self.smem, self.maps = body, cache, blocks, smem, tuple(maps)
        self.cluster = cluster
        self.threads = (threads, 1, 1) if isinstance(threads, int) else threads

    def __call__(self, **buffers: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """All buffers after the kernel has run; the arrays given are what it starts from."""
        flat = {name: np.ascontiguousarray(array).reshape(-1) for name, array in buffers.items()}
        plan = self._plan(flat)
        device = CpuDevice(gpu("h200"), threads=1) if self.emulated else _gpu_device()
        device.allocate(plan.buffers)
        for name, array in flat.items():
            device.upload(name, array)
        program = device.load(self._build(device, plan), plan)
        device.run(program, plan)
        results = {name: device.download(name).reshape(buffers[name].shape) for name in flat}
        program.close()
        device.allocate(())
        return results

    def _build(self, device: Device, plan: LaunchPlan) -> Artifact:
        source = self._source(plan)
        if self.emulated:
            return build_emulator(source, self.cache)
        return build_cubin(source, device.identity.spec.arch, self.cache)

    def _plan(self, flat: Mapping[str, NDArray[Any]]) -> LaunchPlan:
        buffers = tuple(Buffer(name, _NAMES[array.dtype], array.size, "output") for name, array in flat.items())
        pointers = (PointerArg(buffer.name, buffer.name, 0, buffer.dtype, "output") for buffer in buffers)
        args: tuple[Arg, ...] = (*pointers, *self.maps)
        return LaunchPlan(buffers, (Launch("test", self.blocks, self.threads, self.smem, args, self.cluster),))

    def _source(self, plan: LaunchPlan) -> KernelSource:
        includes = collect_includes(self.body, (resource_root("templates"),), "a test's kernel")
        candidate = make_candidate("test", "0", {})
        return KernelSource(candidate, get_op("forward").problem(), "", self.body, includes, plan)


@cache
def _gpu_device() -> Device:
    """The GPU, opened once: it lets go of its context when the process ends."""
    from autotune.devices.cuda import CudaDevice

    return CudaDevice(0)
