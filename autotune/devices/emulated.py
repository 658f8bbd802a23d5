"""The CPU emulator as a device: kernels that g++ built are really executed. Its times are no GPU's."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.core.dtypes import NAN_BYTE, numpy_dtype
from autotune.core.errors import LaunchError
from autotune.core.measurement import Timing
from autotune.core.model_version import DRIVER
from autotune.core.plan import Buffer, Launch, LaunchPlan, TensorSpec, Zero, pack_arguments
from autotune.devices.protocol import Program, TimingBudget
from autotune.devices.staging import same_bits
from autotune.devices.timing import time_adaptively
from autotune.emulator.emulated_maps import encode_tensor_map
from autotune.emulator.guarded import GuardedMemory, SparseMemory
from autotune.emulator.library import EmulatorLibrary, Failure
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.spec import DeviceSpec
from autotune.ops.expected import tensor_view

_SPARSE = 4 << 30
"""Bytes from which on a buffer's memory is given as it is written, without NaN where nothing was."""

_METHOD = "emulator wall clock (not a GPU time)"


@dataclass
class CpuProgram:
    """A loaded emulated binary. Each run has another order of blocks, warps and lanes, always in the same sequence."""

    binary: EmulatorLibrary
    runs: int = 0

    def close(self) -> None:
        self.binary.close()


class CpuDevice:
    """The emulator on `threads` OS threads (default: one a core), in the place of the GPU that `spec` describes."""

    identity: DeviceIdentity

    def __init__(self, spec: DeviceSpec, threads: int | None = None) -> None:
        self.identity = DeviceIdentity("cpu", spec)
        self._threads = threads or len(os.sched_getaffinity(0))
        self._buffers: dict[str, tuple[Buffer, GuardedMemory | SparseMemory]] = {}

    def environment(self) -> Mapping[str, str]:
        """The emulated GPU, the model that estimates its times in a driver's place, the machine that emulates it."""
        return {
            "driver": DRIVER,
            "device": f"CPU emulator, {self._threads} threads, for {self.identity.spec.title}",
            "machine": platform.machine(),
            "host": platform.node(),
        }

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        """Make exactly these buffers exist; those unchanged in name, dtype and size keep their content.

        Raises:
            LaunchError: the machine's memory does not suffice.
        """
        wanted = {buffer.name: buffer for buffer in buffers}
        for name, (held, memory) in list(self._buffers.items()):
            if name not in wanted or _layout(wanted[name]) != _layout(held):
                del self._buffers[name]
                memory.close()
        for name, buffer in wanted.items():
            if name not in self._buffers:
                kind = SparseMemory if buffer.nbytes >= _SPARSE else GuardedMemory
                self._buffers[name] = (buffer, kind(buffer.nbytes))

    def upload(self, name: str, data: NDArray[Any]) -> None:
        """Copy a 1-D array of the buffer's element type and length into it.

        Raises:
            LaunchError: there is no such buffer, or the array does not fit it.
        """
        buffer, memory = self._held(name)
        dtype = numpy_dtype(buffer.dtype)
        if data.dtype != dtype or data.shape != (buffer.elements,):
            raise LaunchError(f"buffer {name} holds {buffer.elements} {buffer.dtype}, got {data.shape} {data.dtype}")
        memory.array(dtype)[:] = data

    def poison(self, name: str, byte: int = NAN_BYTE) -> None:
        self._held(name)[1].fill(byte)

    def download(self, name: str) -> NDArray[Any]:
        """A copy of the buffer's content as a 1-D array of its element type."""
        buffer, memory = self._held(name)
        return memory.array(numpy_dtype(buffer.dtype)).copy()

    def view(self, tensor: TensorSpec) -> NDArray[Any]:
        """The tensor where it lies, in its logical shape; only valid until the buffer is replaced."""
        return tensor_view(self._held(tensor.storage)[1].array(numpy_dtype(tensor.dtype)), tensor)

    def equals(self, name: str, data: NDArray[Any]) -> bool:
        """Whether the buffer holds exactly the bytes of a contiguous 1-D array."""
        buffer, memory = self._held(name)
        return same_bits(memory.array(numpy_dtype(buffer.dtype)), data)

    def load(self, artifact: Artifact, plan: LaunchPlan) -> Program:
        """Load an emulated binary; its launches are held to the limits of the GPU in question.

        Raises:
            LaunchError: a launch asks for more shared memory or threads than the GPU has; the message says both.
        """
        if artifact.kind != "emulator":
            raise LaunchError(f"the emulator cannot run a {artifact.kind}: build it with build_emulator")
        for launch in plan.launches:
            _check(launch, self.identity.spec)
        return CpuProgram(EmulatorLibrary(artifact.path))

    def run(self, program: Program, plan: LaunchPlan) -> None:
        """All steps of the plan once.

        Raises:
            LaunchError: a step failed: an illegal access, a deadlock, a trap. The device goes on working.
        """
        if not isinstance(program, CpuProgram):
            raise LaunchError(f"{type(program).__name__} is not a program of this device")
        program.binary.order(program.runs)
        program.runs += 1
        for name, before in plan.restores:
            self._held(name)[1].array(np.dtype(np.uint8))[:] = self._held(before)[1].array(np.dtype(np.uint8))
        for step in plan.steps:
            if isinstance(step, Zero):
                self._held(step.buffer)[1].fill(0)
            else:
                self._launch(program.binary, step)

    def time(self, program: Program, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        """How long the emulated run takes, restoring what is changed in place included. Says nothing about a GPU.

        Raises:
            LaunchError: a step failed.
        """

        def sample(repeats: int) -> list[float]:
            times = []
            for _ in range(repeats):
                start = time.perf_counter()
                self.run(program, plan)
                times.append((time.perf_counter() - start) * 1e3)
            return times

        return replace(time_adaptively(sample, budget, _METHOD), kind="estimated")

    def close(self) -> None:
        self.allocate(())

    def _held(self, name: str) -> tuple[Buffer, GuardedMemory | SparseMemory]:
        try:
            return self._buffers[name]
        except KeyError:
            raise LaunchError(f"there is no buffer {name}; there are {', '.join(self._buffers) or 'none'}") from None

    def _launch(self, binary: EmulatorLibrary, step: Launch) -> None:
        addresses = {name: memory.address for name, (_, memory) in self._buffers.items()}
        for arg in step.args:
            storage = getattr(arg, "storage", None)
            if storage is not None:
                self._held(storage)
        arguments = pack_arguments(step.args, addresses, encode_tensor_map)
        failure = binary.launch(step, arguments, self._threads)
        damage = self._damage()  # looked at in any case: it is repaired by looking
        if failure is not None:
            raise LaunchError(f"kernel {step.kernel}: {self._describe(failure)}")
        if damage is not None:
            raise LaunchError(f"kernel {step.kernel}: illegal write {damage}")

    def _damage(self) -> str | None:
        found = [f"{said} of buffer {name}" for name, (_, memory) in self._buffers.items() if (said := memory.damage())]
        return found[0] if found else None

    def _describe(self, failure: Failure) -> str:
        what = failure.message if failure.address is None else self._explain(failure.access, failure.address)
        return f"{what}, in block {failure.block}, thread {failure.thread}" if failure.in_kernel else what

    def _explain(self, access: str, address: int) -> str:
        for name, (buffer, memory) in self._buffers.items():
            where = memory.locate(address)
            if where is not None:
                return f"illegal {access} {where} of buffer {name} ({buffer.nbytes} bytes)"
        return f"illegal {access} at address 0x{address:x}, far from every buffer"


def _layout(buffer: Buffer) -> tuple[str, int]:
    return buffer.dtype, buffer.elements


def _check(launch: Launch, spec: DeviceSpec) -> None:
    for asked, allowed, what in (
        (launch.smem, spec.max_shared_memory, "bytes of shared memory"),
        (launch.threads, spec.max_threads_per_block, "threads a block"),
    ):
        if asked > allowed:
            raise LaunchError(f"kernel {launch.kernel} asks for {asked} {what}; {spec.title} allows {allowed}")
    if launch.clustered and spec.compute_capability < 90:
        raise LaunchError(f"kernel {launch.kernel} is launched in clusters; {spec.title} has none")
    if launch.overlaps and spec.compute_capability < 90:
        raise LaunchError(f"kernel {launch.kernel} is to overlap the one before it; {spec.title} cannot do that")
    if min(*launch.grid, *launch.block) < 1:
        raise LaunchError(f"kernel {launch.kernel}: grid {launch.grid} or block {launch.block} is empty")
