"""The C interface of an emulated binary."""

import _ctypes
import ctypes
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.core.errors import BuildError, LaunchError
from autotune.core.plan import Dim3, Launch
from autotune.core.words import printable

_ONE_LAUNCH = threading.Lock()
"""A launch has the process' signal handlers to itself, whichever library it is of."""

_Extent = ctypes.c_uint * 3
_ILLEGAL_ACCESS = 2
_OF_THE_MACHINE = re.compile(  # a folder that is mounted noexec, an entry that was deleted, a limit of memory
    r"failed to map segment|operation not permitted|permission denied|no such file|cannot allocate memory$",
    re.IGNORECASE,
)


class _Result(ctypes.Structure):
    """`emulator::Result` of emulator/launch.hpp."""

    _fields_ = (
        ("kind", ctypes.c_int), ("is_write", ctypes.c_int), ("address", ctypes.c_uint64), ("in_kernel", ctypes.c_int),
        ("block", _Extent), ("thread", _Extent), ("message", ctypes.c_char * 1024),
    )  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """How a launch ended. `address` is that of an illegal access, `message` describes any other failure."""

    message: str
    address: int | None
    access: Literal["read", "write", "access"]
    block: Dim3
    thread: Dim3
    in_kernel: bool


class EmulatorLibrary:
    """A loaded shared library of kernels."""

    def __init__(self, path: Path) -> None:
        """Load it.

        Raises:
            LaunchError: the system refuses the file for what is in it.
            BuildError: the system refuses it for where it lies, or for lack of memory.
        """
        try:
            self._library = ctypes.CDLL(str(path))
            self._launch = self._library.emulator_launch
            self._launch.argtypes = [
                ctypes.c_char_p, _Extent, _Extent, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint,
                ctypes.POINTER(_Result),
            ]  # fmt: skip
            self._launch.restype = ctypes.c_int
            self._order = self._library.emulator_order
            self._order.argtypes, self._order.restype = [ctypes.c_uint64], None
            self._cluster = self._library.emulator_cluster
            self._cluster.argtypes, self._cluster.restype = [_Extent], None
            self._overlaps = self._library.emulator_overlaps
            self._overlaps.argtypes, self._overlaps.restype = [ctypes.c_int], None
        except (OSError, AttributeError) as error:
            if _OF_THE_MACHINE.search(str(error)):
                raise BuildError(
                    f"cannot load {path}: {error}; a build cache (AUTOTUNE_CACHE) must allow programs to be executed"
                ) from error
            raise LaunchError(f"cannot load {path}: {error}") from error

    def order(self, seed: int) -> None:
        """In which order later launches run blocks, warps and lanes: 0 by number, other seeds other permutations."""
        self._order(seed)

    def launch(self, step: Launch, arguments: bytes, threads: int) -> Failure | None:
        """Run one launch on `threads` OS threads; nothing on success."""
        result = _Result()
        extents = _Extent(*step.grid), _Extent(*step.block)
        with _ONE_LAUNCH:
            self._cluster(_Extent(*step.cluster))
            self._overlaps(step.overlaps)
            self._launch(step.kernel.encode(), *extents, step.smem, arguments, len(arguments), threads, result)
        if result.kind == 0:
            return None
        return _failure(result)

    def close(self) -> None:
        _ctypes.dlclose(self._library._handle)


def _failure(result: _Result) -> Failure:
    accesses: dict[int, Literal["read", "write"]] = {0: "read", 1: "write"}
    return Failure(
        message=printable(result.message.decode(errors="replace")),  # a kernel may have written it
        address=int(result.address) if result.kind == _ILLEGAL_ACCESS else None,
        access=accesses.get(result.is_write, "access"),
        block=(result.block[0], result.block[1], result.block[2]),
        thread=(result.thread[0], result.thread[1], result.thread[2]),
        in_kernel=bool(result.in_kernel),
    )
