"""The C interface of a traced binary. Its structures are in emulator/trace: findings.hpp, session.hpp, shadow.hpp."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.emulator.library import EmulatorLibrary
from autotune.trace.statics import shared_variables


class RawPlace(ctypes.Structure):
    """`BufferPlace`."""

    _fields_ = (
        ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("margin", ctypes.c_uint64),
        ("covered", ctypes.c_void_p), ("element_bytes", ctypes.c_uint32), ("is_input", ctypes.c_uint32),
    )  # fmt: skip


class RawStatic(ctypes.Structure):
    """`StaticPlace`."""

    _fields_ = (("offset", ctypes.c_uint32), ("bytes", ctypes.c_uint32), ("is_guard", ctypes.c_uint32))


_u32, _u64 = "<u4", "<u8"

FINDING = np.dtype([
    ("kind", _u32), ("launch", _u32), ("pc", _u32), ("other_pc", _u32), ("is_write", _u32), ("other_is_write", _u32),
    ("space", _u32), ("bytes", _u32), ("offset", "<i8"), ("block", _u64), ("other_block", _u64), ("thread", _u32),
    ("other_thread", _u32), ("mask", _u32), ("count", _u32),
])  # fmt: skip
"""`Finding`."""

STAT = np.dtype([
    ("pc", _u32), ("launch", _u32), ("operation", _u32), ("bytes", _u32), ("requests", _u64), ("lanes", _u64),
    ("sectors", _u64), ("ideal_sectors", _u64), ("wavefronts", _u64), ("ideal_wavefronts", _u64), ("worst", _u32),
    ("conflicted", _u32),
])  # fmt: skip
"""`Stat`."""

DYNAMIC_SHARED, STATIC_SHARED, NO_SPACE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


@dataclass(frozen=True)
class Totals:
    """Accesses to shared and global memory: in blocks traced lightly, in full; of the latter logged and not.

    `first`: in block 0.
    """

    light: int
    full: int
    logged: int
    dropped: int
    first: int


class TracedLibrary(EmulatorLibrary):
    """A loaded traced binary."""

    def __init__(self, path: Path, places: Sequence[RawPlace]) -> None:
        """Load it and tell it where the buffers are.

        Raises:
            LaunchError: the system refuses the file.
        """
        super().__init__(path)
        array = (RawPlace * max(1, len(places)))(*places)
        self._library.emulator_trace_open(array, ctypes.c_uint32(len(places)))
        statics = [RawStatic(v.offset, v.nbytes, v.guard) for v in shared_variables(path)]
        variables = (RawStatic * max(1, len(statics)))(*statics)
        self._library.emulator_trace_statics(variables, ctypes.c_uint32(len(statics)))

    def sample(self, blocks: Sequence[int]) -> None:
        """The blocks of the next launch that are traced in full."""
        numbers = (ctypes.c_uint64 * max(1, len(blocks)))(*sorted(blocks))
        self._library.emulator_trace_sample(numbers, ctypes.c_uint32(len(blocks)))

    def set_written(self, buffer: int) -> None:
        """A buffer has been filled by other means than a kernel."""
        self._library.emulator_trace_set_written(ctypes.c_uint32(buffer))

    def findings(self) -> NDArray[Any]:
        """Of all launches so far."""
        return self._records("emulator_trace_findings", FINDING)

    def stats(self) -> NDArray[Any]:
        """Of the last launch; one entry an instruction and OS thread."""
        return self._records("emulator_trace_stats", STAT)

    def entered(self) -> NDArray[np.uint32]:
        """Of the last launch: how often the code at each address was entered, in full blocks."""
        return self._records("emulator_trace_entered", np.dtype(np.uint32))

    def totals(self) -> Totals:
        """Of the last launch."""
        numbers = (ctypes.c_uint64 * 5)()
        self._library.emulator_trace_totals(numbers)
        return Totals(*(int(number) for number in numbers))

    def _records(self, function: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        call = getattr(self._library, function)
        call.restype = ctypes.c_uint64
        start = ctypes.c_void_p()
        count = int(call(ctypes.byref(start)))
        if count == 0 or start.value is None:
            return np.zeros(0, dtype)
        return np.frombuffer(ctypes.string_at(start.value, count * dtype.itemsize), dtype)
