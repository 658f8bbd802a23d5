"""A CUDA GPU through PyCUDA, on the primary context, so that it is shared with PyTorch in the same process."""

import atexit
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import build_cubin
from autotune.core.dtypes import NAN_BYTE, numpy_dtype
from autotune.core.errors import DeviceMissing, DeviceRefused, LaunchError
from autotune.core.extras import install
from autotune.core.measurement import Energy, Timing
from autotune.core.plan import Buffer, LaunchPlan, Step, Zero, pack_arguments
from autotune.devices.cuda_program import CudaProgram, load_program, translated
from autotune.devices.driver_maps import encode_tensor_map
from autotune.devices.metering import Counter, Gauge, Integrated, energy_of, idle_power_w
from autotune.devices.protocol import Program, TimingBudget
from autotune.devices.staging import Fetch, Staging
from autotune.devices.timing import time_adaptively
from autotune.families.source import KernelSource
from autotune.gpus.cap import NO_CAP, Cap
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.nvml import managed_gpu, read_state, why_no_energy
from autotune.gpus.present import gpu_count, present_gpu
from autotune.gpus.surroundings import surroundings

_FLUSH_SECONDS_A_STEP = 5e-6  # the flush must outlast the host's queueing of the plan, so that no launch waits for it
_MAX_FLUSH_BYTES = 1 << 30

Command = Callable[[], None]


class CudaDevice:
    """The GPU with this index as the driver counts them (`CUDA_VISIBLE_DEVICES` applies).

    After a LaunchError for an illegal access the context is dead, and so is whatever else uses it: end the process.
    """

    identity: DeviceIdentity

    def __init__(self, index: int = 0, cap: Cap = NO_CAP) -> None:
        """Take the primary context. `cap`: to what the GPU is held already, which its records tell.

        Raises:
            DeviceMissing: no such GPU, or PyCUDA is not installed.
        """
        spec = present_gpu(index)
        if spec is None:
            raise DeviceMissing(f"no NVIDIA GPU with index {index}: the driver shows {gpu_count()}; try --device cpu")
        self._driver = _import_pycuda()
        self.identity = DeviceIdentity("cuda", spec, cap)
        self._buffers: dict[str, tuple[Buffer, Any]] = {}
        self._flush: tuple[int, Any] | None = None
        self._staging = Staging(lambda nbytes: self._driver.pagelocked_empty(nbytes, np.uint8))
        try:
            self._driver.init()
            device = self._driver.Device(index)
            self._context = device.retain_primary_context()
            self._context.push()
            self._bus_id = str(device.pci_bus_id())
            self._stream = self._driver.Stream()
        except self._driver.Error as error:
            raise DeviceMissing(f"{spec.title} is there but cannot be used: {error}") from error
        atexit.register(self.close)  # PyCUDA aborts a process that ends with its context still active

    def environment(self) -> Mapping[str, str]:
        """GPU, driver, CUDA version of the driver, host, and the limit of power in force, whoever has set it."""
        return surroundings(self.identity.spec, self._bus_id)

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        """Make exactly these buffers exist; those unchanged in name, dtype and size keep their content.

        Raises:
            LaunchError: the GPU's memory does not suffice.
        """
        wanted = {buffer.name: buffer for buffer in buffers}
        for name, (held, memory) in list(self._buffers.items()):
            if name not in wanted or _layout(wanted[name]) != _layout(held):
                del self._buffers[name]
                with self._translated(f"cannot free buffer {name}"):
                    memory.free()
        for name, buffer in wanted.items():
            if name not in self._buffers:
                self._buffers[name] = (buffer, self._allocate_bytes(buffer.nbytes, f"buffer {name}"))

    def upload(self, name: str, data: NDArray[Any]) -> None:
        """Copy a 1-D array of the buffer's element type and length into it.

        Raises:
            LaunchError: the array does not fit the buffer, or the copy failed.
        """
        buffer, memory = self._held(name)
        if data.dtype != numpy_dtype(buffer.dtype) or data.shape != (buffer.elements,):
            raise LaunchError(f"buffer {name} holds {buffer.elements} {buffer.dtype}, got {data.shape} {data.dtype}")
        if buffer.nbytes:
            with self._translated(f"cannot upload {name}"):
                self._driver.memcpy_htod(memory, np.ascontiguousarray(data).view(np.uint8))

    def poison(self, name: str, byte: int = NAN_BYTE) -> None:
        buffer, memory = self._held(name)
        with self._translated(f"cannot fill {name}"):
            self._memset(memory, byte, buffer.nbytes, self._stream)()

    def download(self, name: str) -> NDArray[Any]:
        buffer, memory = self._held(name)
        with self._translated(f"cannot download {name}"):
            self._stream.synchronize()
            return self._staging.read(buffer.nbytes, self._fetch(memory)).view(numpy_dtype(buffer.dtype))

    def equals(self, name: str, data: NDArray[Any]) -> bool:
        """Whether the buffer holds exactly the bytes of a contiguous 1-D array."""
        buffer, memory = self._held(name)
        if data.nbytes != buffer.nbytes:
            return False
        with self._translated(f"cannot read {name}"):
            self._stream.synchronize()
            return self._staging.equals(data, self._fetch(memory))

    def load(self, artifact: Artifact, plan: LaunchPlan) -> Program:
        """Load a cubin and raise its kernels' shared-memory limits to what the plan asks for.

        Raises:
            LaunchError: the device refuses it; for shared memory the message says asked and available.
        """
        return load_program(self._driver, artifact, plan, self.identity.spec)

    def build(self, source: KernelSource) -> Artifact:
        return build_cubin(source, self.identity.spec.arch, BuildCache())

    def free_bytes(self) -> int:
        with self._translated("cannot ask how much memory is free"):
            free, _ = self._driver.mem_get_info()
        return int(free)

    def run(self, program: Program, plan: LaunchPlan) -> float:
        """All steps of the plan once, then synchronise; milliseconds on the GPU.

        Raises:
            LaunchError: a step failed.
        """
        with self._translated(_what(plan)):
            return self._sample([self._before(plan, None), *self._commands(program, plan, self._stream)], 1)[0]

    def enqueue(self, program: Program, plan: LaunchPlan, addresses: Mapping[str, int]) -> None:
        """All steps once on the legacy default stream, without waiting; `addresses` go before buffers of this device.

        Raises:
            LaunchError: a step could not be launched.
        """
        with self._translated(_what(plan)):
            for command in self._commands(program, plan, None, addresses):
                command()

    def time(self, program: Program, plan: LaunchPlan, budget: TimingBudget) -> Timing:
        """Median time of the whole plan between two events, L2 flushed before each repeat.

        Raises:
            LaunchError: a step failed, or took no time.
        """
        before = self._before(plan, self._flush_command(plan))
        commands = [before, *self._commands(program, plan, self._stream)]
        with self._translated(_what(plan)):
            timing = time_adaptively(partial(self._sample, commands), budget, "events, L2 flushed")
        state = read_state(self._bus_id)
        return replace(timing, clock_mhz=state.clock_mhz, power_w=state.power_w, temperature_c=state.temperature_c)

    def why_no_energy(self) -> str:
        return why_no_energy(self._bus_id)

    def idle_power_w(self) -> float:
        return idle_power_w(self._gauge())

    def energy(self, program: Program, plan: LaunchPlan, seconds: float) -> Energy:
        commands = [self._before(plan, None), *self._commands(program, plan, self._stream)]

        def run(calls: int) -> None:
            for _ in range(calls):
                for command in commands:
                    command()
            self._stream.synchronize()

        with self._translated(_what(plan)):
            took = self._sample(commands, 3)[-1]
            energy = energy_of(run, took, self._gauge(), seconds)
        state = read_state(self._bus_id)
        return replace(energy, clock_mhz=state.clock_mhz, temperature_c=state.temperature_c)

    def _gauge(self) -> Gauge:
        gauge = _gauge(self._bus_id)
        if gauge is None:
            raise DeviceRefused(f"no energy of {self.identity.spec.title}: {self.why_no_energy()}")
        return gauge

    def close(self) -> None:
        """Free everything and let go of the context; quiet when the context is dead."""
        if self._context is None:
            return
        self._flush = None
        self._stream = None
        for step in (self._staging.close, self._buffers.clear, self._context.pop):
            with contextlib.suppress(self._driver.Error):
                step()
        self._context = None
        atexit.unregister(self.close)

    def _before(self, plan: LaunchPlan, flush: Command | None) -> Command:
        """What comes before each run and is not timed: restoring what kernels change in place, then the flush."""
        copies: list[Command] = [
            partial(
                self._driver.memcpy_dtod_async, self._held(name)[1], self._held(before)[1],
                self._held(name)[0].nbytes, self._stream,
            )
            for name, before in plan.restores
        ]  # fmt: skip
        commands = [*copies, *([] if flush is None else [flush])]

        def run() -> None:
            for command in commands:
                command()

        return run

    def _sample(self, commands: Sequence[Command], repeats: int) -> list[float]:
        """Times of all commands but the first, which comes before each run."""
        flush, *steps = commands
        pairs = [(self._driver.Event(), self._driver.Event()) for _ in range(repeats)]
        stream = self._stream
        for before, after in pairs:
            flush()
            before.record(stream)
            for step in steps:
                step()
            after.record(stream)
        stream.synchronize()
        return [float(after.time_since(before)) for before, after in pairs]

    def _commands(
        self, program: Program, plan: LaunchPlan, stream: Any, foreign: Mapping[str, int] | None = None
    ) -> list[Command]:
        """Each step as a call without arguments: everything is packed beforehand. No stream is the default one."""
        assert isinstance(program, CudaProgram)
        addresses = {name: int(memory) for name, (_, memory) in self._buffers.items()} | dict(foreign or {})
        return [self._command(program, step, addresses, stream) for step in plan.steps]

    def _command(self, program: CudaProgram, step: Step, addresses: Mapping[str, int], stream: Any) -> Command:
        if isinstance(step, Zero):
            buffer, memory = self._held(step.buffer)
            return self._memset(memory, 0, buffer.nbytes, stream)
        packed = pack_arguments(step.args, addresses, encode_tensor_map, program.places.get(step.kernel))
        if step.has_attributes:
            return partial(program.with_attributes.launch, step, packed, 0 if stream is None else stream.handle)
        return partial(program.kernels[step.kernel]._launch_kernel, step.grid, step.block, packed, step.smem, stream)

    def _memset(self, memory: Any, byte: int, nbytes: int, stream: Any) -> Command:
        if nbytes == 0:
            return _nothing
        return partial(self._driver.memset_d8_async, memory, byte, nbytes, stream)

    def _flush_command(self, plan: LaunchPlan) -> Command:
        spec = self.identity.spec
        outlast = len(plan.steps) * _FLUSH_SECONDS_A_STEP * spec.bandwidth_gbs * 1e9
        nbytes = int(max(2 * spec.l2_bytes, min(outlast, _MAX_FLUSH_BYTES)))
        if self._flush is None or self._flush[0] < nbytes:
            self._flush = None
            self._flush = (nbytes, self._allocate_bytes(nbytes, "the L2 flush"))
        return self._memset(self._flush[1], 0, nbytes, self._stream)

    def _fetch(self, memory: Any) -> Fetch:
        return lambda piece, start: self._driver.memcpy_dtoh(piece, int(memory) + start)

    def _allocate_bytes(self, nbytes: int, what: str) -> Any:
        try:
            return self._driver.mem_alloc(max(nbytes, 1))
        except self._driver.MemoryError as error:
            free, total = self._driver.mem_get_info()
            raise LaunchError(
                f"{what} needs {nbytes} bytes; {self.identity.spec.title} has {free} of {total} free"
            ) from error
        except self._driver.Error as error:
            raise LaunchError(f"cannot allocate {what}: {error}") from error

    def _held(self, name: str) -> tuple[Buffer, Any]:
        try:
            return self._buffers[name]
        except KeyError:
            raise LaunchError(f"there is no buffer {name!r}; allocated: {', '.join(self._buffers) or 'none'}") from None

    def _translated(self, what: str) -> contextlib.AbstractContextManager[None]:
        return translated(self._driver, what)


def _import_pycuda() -> ModuleType:
    try:
        import pycuda.driver
    except ImportError as error:
        raise DeviceMissing(f"PyCUDA is not installed: {install('gpu')}: {error}") from error
    return pycuda.driver  # type: ignore[no-any-return]


def _gauge(bus_id: str) -> Gauge | None:
    """The counter of energy, else sampled power, else nothing."""
    gpu = managed_gpu(bus_id)
    if gpu is None:
        return None
    counter = Counter(lambda: gpu.energy_mj)
    gauge: Gauge = counter if counter.read() is not None else Integrated(lambda: gpu.power_w)
    return None if gauge.read() is None else gauge


def _layout(buffer: Buffer) -> tuple[str, int]:
    return buffer.dtype, buffer.elements


def _what(plan: LaunchPlan) -> str:
    return f"kernel {', '.join(plan.kernels)}" if plan.kernels else "plan"


def _nothing() -> None:
    pass
