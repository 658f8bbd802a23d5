"""The CUDA driver through ctypes: what calling a kernel needs, in the caller's own context and on its own stream.

A call must cost little and must not disturb the library whose arrays it gets. So nothing here makes a context: the
primary one is used, which PyTorch, CuPy, JAX and the CUDA runtime share, and which mostly is current already.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from autotune.core.errors import DeviceMissing, LaunchError
from autotune.core.plan import TensorMapArg
from autotune.devices.driver_maps import encode_tensor_map

NO_CONTEXT = (3, 201, 400)
"""Statuses of a launch where another context is current, or none: not initialised, invalid context, invalid handle."""

_MAX_THREADS, _STATIC_SHARED, _REGISTERS, _MAX_DYNAMIC_SHARED = 0, 1, 4, 8  # CUfunction_attribute
_RELAXED = 2  # CUstreamCaptureMode
_NO_TIMING = 2  # CUevent_flags

Call = Callable[..., int]
"""A function of the driver: arguments as ctypes objects or whole numbers, a status in return."""


class Driver:
    """Functions of libcuda that raise, and three that calls use as they are: `launch`, `memset` and `encode`.

    `launch(config, function, None, extra)` is cuLaunchKernelEx, `memset(address, byte, bytes, stream)` is
    cuMemsetD8Async; both give the driver's status.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.launch: Call = library.cuLaunchKernelEx
        memset = library.cuMemsetD8Async
        memset.argtypes = [ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, ctypes.c_void_p]
        self.memset: Call = memset
        self._contexts: dict[int, ctypes.c_void_p] = {}

    def encode(self, arg: TensorMapArg, address: int) -> bytes:
        """A tensor map of 128 bytes."""
        return encode_tensor_map(arg, address)

    def said(self, status: int) -> str:
        """A status in the driver's words."""
        text = ctypes.c_char_p()
        if self._library.cuGetErrorString(status, ctypes.byref(text)) or text.value is None:
            return f"CUDA error {status}"
        return f"{text.value.decode()} (CUDA error {status})"

    @contextmanager
    def current(self, index: int) -> Iterator[None]:
        """Within the block the primary context of a GPU is the thread's.

        Raises:
            DeviceMissing: it cannot be had.
        """
        if index not in self._contexts:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            status = self._library.cuDeviceGet(ctypes.byref(device), index)
            status = status or self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            if status:
                raise DeviceMissing(f"GPU {index} cannot be used: {self.said(status)}")
            self._contexts[index] = context
        self._check(self._library.cuCtxPushCurrent_v2(self._contexts[index]), f"cannot use GPU {index}")
        try:
            yield
        finally:
            self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def load(self, path: Path) -> int:
        """The handle of a cubin's module in the current context; allowed while a stream is being captured.

        Raises:
            LaunchError: the driver refuses it.
        """
        module, mode = ctypes.c_void_p(), ctypes.c_int(_RELAXED)
        self._library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            status = self._library.cuModuleLoadData(ctypes.byref(module), path.read_bytes())
        finally:
            self._library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        self._check(status, f"cannot load {path.name}")
        return int(module.value or 0)

    def function(self, module: int, name: str) -> int:
        """The handle of a kernel.

        Raises:
            LaunchError: the module has none of this name.
        """
        found = ctypes.c_void_p()
        status = self._library.cuModuleGetFunction(ctypes.byref(found), ctypes.c_void_p(module), name.encode())
        self._check(status, f"there is no kernel {name}")
        return int(found.value or 0)

    def limits(self, function: int) -> tuple[int, int, int]:
        """Threads that a block may have, registers a thread, and bytes of static shared memory."""
        return tuple(self._attribute(function, code) for code in (_MAX_THREADS, _REGISTERS, _STATIC_SHARED))  # type: ignore[return-value]

    def allow_shared(self, function: int, nbytes: int) -> None:
        """Let a kernel have more dynamic shared memory than those 48 KiB that all may.

        Raises:
            LaunchError: the device has not that much.
        """
        status = self._library.cuFuncSetAttribute(ctypes.c_void_p(function), _MAX_DYNAMIC_SHARED, nbytes)
        self._check(status, f"a kernel cannot have {nbytes} bytes of dynamic shared memory")

    def allocate(self, nbytes: int) -> int:
        """The address of new memory on the current GPU.

        Raises:
            LaunchError: there is not that much.
        """
        address, mode = ctypes.c_uint64(), ctypes.c_int(_RELAXED)
        self._library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        try:
            status = self._library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(1, nbytes)))
        finally:
            self._library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
        self._check(status, f"cannot allocate {nbytes} bytes")
        return address.value

    def free(self, address: int) -> None:
        """Give memory back, once all that was queued before has ended."""
        self._library.cuMemFree_v2(ctypes.c_uint64(address))

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        """From the host; returns when it is done."""
        status = self._library.cuMemcpyHtoD_v2(ctypes.c_uint64(address), ctypes.c_void_p(host), ctypes.c_size_t(nbytes))
        self._check(status, "cannot copy to the GPU")

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        """To the host, after all kernels of the legacy default stream; returns when it is done."""
        status = self._library.cuMemcpyDtoH_v2(ctypes.c_void_p(host), ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        self._check(status, "cannot copy from the GPU, or a kernel before has failed")

    def follow(self, stream: int, other: int) -> None:
        """Let what comes next on `stream` wait, on the GPU, for what is on another one now."""
        event = ctypes.c_void_p()
        self._check(self._library.cuEventCreate(ctypes.byref(event), _NO_TIMING), "cannot make an event")
        try:
            status = self._library.cuEventRecord(event, ctypes.c_void_p(other))
            status = status or self._library.cuStreamWaitEvent(ctypes.c_void_p(stream), event, 0)
        finally:
            self._library.cuEventDestroy_v2(event)
        self._check(status, f"stream {stream:#x} cannot wait for stream {other:#x}")

    def _attribute(self, function: int, code: int) -> int:
        value = ctypes.c_int()
        self._check(
            self._library.cuFuncGetAttribute(ctypes.byref(value), code, ctypes.c_void_p(function)), "no such kernel"
        )
        return value.value

    def _check(self, status: int, what: str) -> None:
        if status:
            raise LaunchError(f"{what}: {self.said(status)}")


@cache
def cuda_driver() -> Driver:
    """The one of this machine.

    Raises:
        DeviceMissing: there is none, or it is older than CUDA 12.
    """
    try:
        library: Any = ctypes.CDLL("libcuda.so.1")
        status = library.cuInit(0)
        found = Driver(library)
    except (OSError, AttributeError) as error:
        raise DeviceMissing(f"there is no CUDA driver of CUDA 12 or later here: {error}") from error
    if status:
        raise DeviceMissing(f"the CUDA driver shows no GPU (error {status})")
    return found
