"""Launches made ready: for arrays of one set of shapes and strides everything is packed, and a call fills in addresses.

What a call changes lies in a *frame*: parameter buffers, launch configurations, the arrays that point at them. A call
takes a frame that nobody else uses, or makes one, so that any number of threads may call at once.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from autotune.compilers.artifact import Artifact
from autotune.compilers.parameters import parameter_places
from autotune.core.dtypes import DTYPES
from autotune.core.errors import LaunchError
from autotune.core.plan import (
    TENSOR_MAP_BYTES,
    Launch,
    LaunchPlan,
    ScalarArg,
    TensorMapArg,
    Zero,
    argument_places,
    pack_arguments,
)
from autotune.devices.cuda_program import UNASKED_SMEM, check_launch
from autotune.devices.driver import NO_CONTEXT, Driver
from autotune.devices.driver_launches import attributes_of
from autotune.gpus.spec import DeviceSpec

_ALIGNMENT = 256  # of workspaces, as that of allocations
_MOST_MAPS = 64  # remembered by each tensor map of a frame
_CONFIG = struct.Struct("<7I4xQQI4x")  # CUlaunchConfig: grid, block, shared memory, stream, attributes and their number
_STREAM, _ATTRIBUTES = 32, 40  # offsets of the stream and of the attributes' address in it
_ATTRIBUTE_BYTES = 72  # CUlaunchAttribute: which, then, from 8 on, a union of 64 bytes
_PARAMETERS, _SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_BUFFER_POINTER, …_SIZE, …_END


class Binary(Protocol):
    """Kernels that are loaded on one GPU: what `Driver.launch` wants to know of them."""

    def handle(self, kernel: str) -> int:
        """What the driver calls it."""

    def places(self, launch: Launch) -> Sequence[int]:
        """The offset of each of its parameters."""

    def check(self, plan: LaunchPlan) -> None:
        """Raise LaunchError where the device cannot launch a plan of theirs; the message says asked and available."""


class Cubin:
    """A cubin loaded into the primary context of a GPU, its kernels' shared-memory limits raised where asked for."""

    def __init__(self, driver: Driver, index: int, artifact: Artifact, plan: LaunchPlan, spec: DeviceSpec) -> None:
        """Load it.

        Raises:
            LaunchError: the driver refuses it.
        """
        self._path, self._spec = artifact.path, spec
        self._places: dict[str, Sequence[int]] = {}
        with driver.current(index):
            module = driver.load(artifact.path)
            self._handles = {name: driver.function(module, name) for name in plan.kernels}
            self._limits = {name: driver.limits(handle) for name, handle in self._handles.items()}
            for name, handle in self._handles.items():
                *_, static = self._limits[name]
                if spec.max_shared_memory > UNASKED_SMEM:
                    driver.allow_shared(handle, spec.max_shared_memory - static)

    def check(self, plan: LaunchPlan) -> None:
        """Raise LaunchError where the device cannot launch it so."""
        for launch in plan.launches:
            check_launch(launch, self._spec, *self._limits[launch.kernel])

    def handle(self, kernel: str) -> int:
        return self._handles[kernel]

    def places(self, launch: Launch) -> Sequence[int]:
        if not any(isinstance(arg, TensorMapArg) for arg in launch.args):
            return argument_places(launch.args)
        if launch.kernel not in self._places:
            self._places[launch.kernel] = parameter_places(self._path, launch.kernel)
        return self._places[launch.kernel]


_Pointer = tuple[int, int, int]
"""Where an address goes, in words of 8 bytes; which of a call's addresses it is, and how far behind it."""


class _Map:
    """A tensor map of a frame: made anew where the address is not the last one, and not one of the recent ones."""

    def __init__(self, place: int, which: int, offset: int, arg: TensorMapArg) -> None:
        self.place, self.which, self.offset, self.arg = place, which, offset, arg
        self.address = -1
        self.known: dict[int, bytes] = {}

    def content(self, driver: Driver, index: int, address: int) -> bytes:
        made = self.known.get(address)
        if made is None:
            if (complaint := self.arg.complaint(address)) is not None:
                raise LaunchError(f"{self.arg.name}: TMA cannot copy this tensor: {complaint}")
            if len(self.known) >= _MOST_MAPS:
                self.known.clear()
            with driver.current(index):  # the driver makes none in a thread that has not used CUDA
                made = self.known[address] = self.arg.encoded(address, driver.encode)
        return made


class Prepared:
    """A plan's steps for arrays of certain shapes and strides on one GPU.

    Addresses are handed over in the order of `names`, with that of the workspace last.
    """

    def __init__(self, driver: Driver, index: int, binary: Binary, plan: LaunchPlan, names: Sequence[str]) -> None:
        """Pack what does not change.

        Args:
            driver: of the GPU.
            index: of the GPU, as the driver counts them.
            binary: the kernels.
            plan: its arguments point at arrays by their names, and at workspaces.
            names: of the arrays, in the order in which a call gives their addresses.

        Raises:
            LaunchError: the device does not take the plan, or TMA an array, wherever it lies.
        """
        binary.check(plan)
        self._driver, self._index, self._binary, self._plan = driver, index, binary, plan
        self._which = {name: (number, 0) for number, name in enumerate(names)}
        end = 0
        for buffer in plan.buffers:
            if buffer.role == "workspace":
                self._which[buffer.name] = (len(names), end)
                end += -(-buffer.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.workspace_bytes = end
        self._frames: list[_Frame] = []
        self._frames.append(self._frame())

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Queue all steps on a stream, without waiting.

        Raises:
            LaunchError: the driver refuses a step, or TMA an address.
        """
        try:
            frame = self._frames.pop()
        except IndexError:  # all are in use by other threads
            frame = self._frame()
        try:
            status, done = frame.launch(addresses, stream)
            if status and done == 0 and status in NO_CONTEXT:  # a thread that has not used CUDA, or another GPU of it
                with self._driver.current(self._index):
                    status, done = frame.launch(addresses, stream)
        finally:
            self._frames.append(frame)
        if status:
            step = self._plan.steps[done]
            what = f"kernel {step.kernel}" if isinstance(step, Launch) else f"clearing {step.buffer}"
            raise LaunchError(f"{what}: {self._driver.said(status)}")

    def _frame(self) -> "_Frame":
        return _Frame(self._driver, self._index, self._binary, self._plan, self._which)


class _Frame:
    """One block of memory with all that the driver reads; `_words` and `_bytes` are views of it."""

    def __init__(
        self, driver: Driver, index: int, binary: Binary, plan: LaunchPlan, which: Mapping[str, tuple[int, int]]
    ) -> None:
        self._driver, self._index = driver, index
        self._pointers: list[_Pointer] = []
        self._maps: list[_Map] = []
        self._streams: list[int] = []
        self._stream = 0
        self._commands: list[tuple[Any, ...]] = []
        parts, end = list[tuple[int, bytes]](), 0
        sizes = {buffer.name: buffer.nbytes for buffer in plan.buffers}
        later: list[tuple[Launch, int, int, int]] = []
        for step in plan.steps:
            if isinstance(step, Zero):
                self._commands.append((*which[step.buffer], sizes[step.buffer]))
                continue
            places = binary.places(step)
            nothing = dict.fromkeys(which, 0)
            packed = pack_arguments(step.args, nothing, lambda *_: bytes(TENSOR_MAP_BYTES), places)
            self._note(step, places, end, which)
            config = end + -(-len(packed) // 64) * 64
            attributes = attributes_of(step)
            grid = _CONFIG.pack(*step.grid, *step.block, step.smem, 0, 0, len(attributes))
            parts += [(end, packed), (config, grid)]
            self._streams.append((config + _STREAM) // 8)
            later.append((step, end, config, len(packed)))
            self._commands.append((len(later) - 1,))
            end = config + 128  # the configuration, the parameters' size, and the array that leads to both
            for place, (number, given) in enumerate(attributes):
                content = struct.pack(f"<I4x{len(given)}I", number, *given)
                parts.append((end + place * _ATTRIBUTE_BYTES, content))
            end += -(-len(attributes) * _ATTRIBUTE_BYTES // 64) * 64
        self._memory = bytearray(max(8, end))
        self._bytes = memoryview(self._memory)
        self._words = self._bytes.cast("Q")
        self._anchor = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        base = ctypes.addressof(self._anchor)
        for start, content in parts:
            self._bytes[start : start + len(content)] = content
        launches = []
        for step, start, config, length in later:
            size, extra = config + 56, config + 64
            self._words[size // 8] = length
            if step.has_attributes:
                self._words[(config + _ATTRIBUTES) // 8] = base + config + 128
            for place, word in enumerate((_PARAMETERS, base + start, _SIZE, base + size, _END)):
                self._words[extra // 8 + place] = word
            pointers = (base + config, binary.handle(step.kernel), None, base + extra)
            launches.append((driver.launch, *(ctypes.c_void_p(pointer) for pointer in pointers)))
        self._commands = [launches[command[0]] if len(command) == 1 else command for command in self._commands]

    def _note(self, step: Launch, places: Sequence[int], start: int, which: Mapping[str, tuple[int, int]]) -> None:
        """What of a launch's parameters depends on addresses."""
        for arg, place in zip(step.args, places, strict=True):
            if isinstance(arg, ScalarArg):
                continue
            number, offset = which[arg.storage]
            offset += arg.offset * DTYPES[arg.dtype].size
            if isinstance(arg, TensorMapArg):
                self._maps.append(_Map(start + place, number, offset, arg))
            else:
                self._pointers.append(((start + place) // 8, number, offset))

    def launch(self, addresses: Sequence[int], stream: int) -> tuple[int, int]:
        """The first status that is not 0, and how many steps went before it."""
        words = self._words
        for place, which, offset in self._pointers:
            words[place] = addresses[which] + offset
        for held in self._maps:
            address = addresses[held.which] + held.offset
            if address != held.address:
                content = held.content(self._driver, self._index, address)
                self._bytes[held.place : held.place + len(content)] = content
                held.address = address
        if stream != self._stream:
            self._stream = stream
            for place in self._streams:
                words[place] = stream
        for number, command in enumerate(self._commands):
            if len(command) == 5:
                status = command[0](command[1], command[2], command[3], command[4])
            else:
                which, offset, nbytes = command
                status = self._driver.memset(addresses[which] + offset, 0, nbytes, stream)
            if status:
                return status, number
        return 0, len(self._commands)
