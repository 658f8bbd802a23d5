"""Launches with attributes: `cuLaunchKernelEx` of libcuda, through ctypes; PyCUDA has no call for it."""

import ctypes
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from autotune.core.errors import LaunchError
from autotune.core.plan import Launch

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
_CLUSTER_DIMENSION, _PROGRAMMATIC_STREAM_SERIALIZATION = 4, 6  # CUlaunchAttributeID
_POINTER, _SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_...


class LaunchAttribute(ctypes.Structure):
    """`CUlaunchAttribute`: a number, and a union of 64 bytes that begins with what the attribute has."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


def attributes_of(launch: Launch) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """A launch's attributes as the driver has them: the number of each, and the words that its union begins with."""
    cluster = (_CLUSTER_DIMENSION, launch.cluster)
    overlap = (_PROGRAMMATIC_STREAM_SERIALIZATION, (1,))
    return (cluster,) * launch.clustered + (overlap,) * launch.overlaps


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass
class AttributeKernels:
    """A cubin's kernels as the driver itself has them, in the context that is current; loaded with the first."""

    cubin: Path
    _module: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)
    _functions: dict[str, ctypes.c_void_p] = field(default_factory=dict)

    def prepare(self, launch: Launch) -> None:
        """Find a launch's kernel, and allow it its dynamic shared memory.

        Raises:
            LaunchError: the driver refuses.
        """
        if not self._module:
            _checked("cuModuleLoadData", ctypes.byref(self._module), self.cubin.read_bytes())
        function = self._functions.setdefault(launch.kernel, ctypes.c_void_p())
        if not function:
            _checked("cuModuleGetFunction", ctypes.byref(function), self._module, launch.kernel.encode())
        _checked("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.smem)

    def launch(self, launch: Launch, arguments: bytes, stream: int) -> None:
        """Put a prepared launch on a stream; `stream` is its handle, 0 the default one.

        Raises:
            LaunchError: the driver refuses.
        """
        given = attributes_of(launch)
        attributes = (LaunchAttribute * len(given))()
        for attribute, (number, words) in zip(attributes, given, strict=True):
            attribute.id = number
            attribute.value[: len(words)] = words
        three = ctypes.c_uint * 3
        config = LaunchConfig(three(*launch.grid), three(*launch.block), launch.smem, stream, attributes, len(given))
        size = ctypes.c_size_t(len(arguments))
        extra = (ctypes.c_void_p * 5)(
            _POINTER, ctypes.cast(ctypes.c_char_p(arguments), ctypes.c_void_p), _SIZE, ctypes.addressof(size), _END
        )
        function = self._functions[launch.kernel]
        _checked("cuLaunchKernelEx", ctypes.byref(config), function, None, extra)

    def close(self) -> None:
        """Unload."""
        self._functions.clear()
        if self._module:
            _driver().cuModuleUnload(self._module)
            self._module = ctypes.c_void_p()


def _checked(call: str, *arguments: Any) -> None:
    try:
        status = getattr(_driver(), call)(*arguments)
    except AttributeError as error:
        raise LaunchError(
            f"this CUDA driver launches neither clusters nor kernels that overlap: it has no {call}"
        ) from error
    if status != 0:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(status, ctypes.byref(name))
        raise LaunchError(f"{call}: {(name.value or b'error').decode()} ({status})")


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"there is no CUDA driver: {error}") from error
