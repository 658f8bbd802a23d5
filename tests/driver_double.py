"""A CUDA driver whose kernels are emulated ones: launches are read as the driver reads them, and run on the CPU.

Arrays "on the GPU" are NumPy's memory behind `__cuda_array_interface__`.
"""

import ctypes
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.answers.best import Best
from autotune.answers.kernel import Kernel
from autotune.compilers.cache import BuildCache
from autotune.core.errors import LaunchError
from autotune.core.plan import Launch, LaunchPlan, argument_places
from autotune.devices.prepared import Binary
from autotune.emulator.building import build_emulator
from autotune.emulator.emulated_maps import encode_tensor_map
from autotune.emulator.library import EmulatorLibrary


class OnGpu:
    """A NumPy array that says it lies on a GPU."""

    def __init__(self, array: NDArray[Any], stream: int | None = None) -> None:
        self.array = array
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides, data = self.array.strides, (self.array.ctypes.data, False)
        typestr = self.array.dtype.str
        said = {"shape": self.array.shape, "strides": strides, "data": data, "typestr": typestr, "version": 3}
        return said if self._stream is None else {**said, "stream": self._stream}


class EmulatedBinary:
    """An emulated library in the place of a loaded cubin; handles are places in the driver's list."""

    def __init__(self, driver: "EmulatedDriver", library: EmulatorLibrary) -> None:
        self._driver, self._library = driver, library

    def handle(self, kernel: str) -> int:
        self._driver.kernels.append((self._library, kernel))
        return len(self._driver.kernels)

    def places(self, launch: Launch) -> Sequence[int]:
        return argument_places(launch.args)

    def check(self, plan: LaunchPlan) -> None:
        self._driver.checked.append(plan)


NO_CONTEXT = 201
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID


class EmulatedDriver:
    """As of the real one, a thread has no context until it is given one, and all but the look for errors needs one."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self.kernels: list[tuple[EmulatorLibrary, str]] = []
        self.checked: list[LaunchPlan] = []
        self.launched: list[tuple[str, int]] = []  # kernel, stream
        self.followed: list[tuple[int, int]] = []
        self.memory: dict[int, NDArray[Any]] = {}
        self.refusals: list[int] = []  # statuses of the next launches
        self.contexts = 0
        self.encoded = 0
        self._lock = threading.Lock()

    def launch(self, config: Any, function: Any, parameters: None, extra: Any) -> int:
        if self.refusals:
            return self.refusals.pop(0)
        if not self._has_context:
            return NO_CONTEXT
        raw = ctypes.string_at(config.value, 56)
        x, y, z, bx, by, bz, smem, stream, attributes, count = struct.unpack("<7I4xQQI4x", raw)
        assert count == (attributes != 0)
        if count:  # the emulator runs kernels one after another, as one that overlaps the kernel before it allows
            assert struct.unpack("<I4xI", ctypes.string_at(attributes, 12)) == (_PROGRAMMATIC_STREAM_SERIALIZATION, 1)
        first, buffer, second, size, last = struct.unpack("<5Q", ctypes.string_at(extra.value, 40))
        assert (first, second, last) == (1, 2, 0)
        arguments = ctypes.string_at(buffer, struct.unpack("<Q", ctypes.string_at(size, 8))[0])
        library, kernel = self.kernels[function.value - 1]
        with self._lock:
            self.launched.append((kernel, stream))
        failure = library.launch(Launch(kernel, (x, y, z), (bx, by, bz), smem, ()), arguments, 2)
        assert failure is None, failure
        return 0

    @property
    def _has_context(self) -> bool:
        return bool(getattr(self._thread, "contexts", 0))

    def _require(self, what: str) -> None:
        if not self._has_context:
            raise LaunchError(f"{what}: status {NO_CONTEXT}")

    def memset(self, address: int, byte: int, nbytes: int, stream: int) -> int:
        if not self._has_context:
            return NO_CONTEXT
        ctypes.memset(address, byte, nbytes)
        return 0

    def encode(self, arg: Any, address: int) -> bytes:
        self._require("encode")
        self.encoded += 1
        return encode_tensor_map(arg, address)

    def said(self, status: int) -> str:
        return f"status {status}"

    @contextmanager
    def current(self, index: int) -> Iterator[None]:
        self.contexts += 1
        self._thread.contexts = getattr(self._thread, "contexts", 0) + 1
        try:
            yield
        finally:
            self._thread.contexts -= 1

    def allocate(self, nbytes: int) -> int:
        self._require("allocate")
        memory = np.full(nbytes + 256, 0xFF, np.uint8)
        address = memory.ctypes.data + -memory.ctypes.data % 256
        self.memory[address] = memory
        return address

    def free(self, address: int) -> None:
        self._require("free")
        del self.memory[address]

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        self._require("copy")
        ctypes.memmove(address, host, nbytes)

    copy_out = copy_in

    def follow(self, stream: int, other: int) -> None:
        self._require("follow")
        self.followed.append((stream, other))


def emulated(kernel: Kernel, driver: EmulatedDriver) -> Kernel:
    """The same kernel as if on a GPU of this driver."""
    made: Any = Kernel(kernel.best, kernel._find, driver, 0)  # type: ignore[arg-type]
    libraries: dict[str, Binary] = {}

    def binary(gpu: int, found: Best) -> Binary:
        with made._lock:
            if found.source.hash not in libraries:
                path: Path = build_emulator(found.source, BuildCache()).path
                libraries[found.source.hash] = EmulatedBinary(driver, EmulatorLibrary(path))
            return libraries[found.source.hash]

    made._binary = made._runner._binary = binary
    return made  # type: ignore[no-any-return]
