"""Buffers of a traced run: wide margins around each, so that a stray access is told and not a crash."""

import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.errors import LaunchError

MARGIN = 1 << 26
"""Bytes before and behind each buffer that belong to it alone; memory is taken only for what is touched."""

_ALIGNMENT = 256  # of the start, as cudaMalloc has it


class TracedMemory:
    """`nbytes` with a margin on either side. Nothing but the margin tells an access that is out of bounds."""

    def __init__(self, nbytes: int) -> None:
        """Map the memory, filled with 0xFF.

        Raises:
            LaunchError: the machine has not that much memory.
        """
        self.nbytes = nbytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        try:
            self._map = mmap.mmap(-1, nbytes + 2 * MARGIN + _ALIGNMENT, flags)
        except OSError as error:
            raise LaunchError(f"out of memory: cannot allocate {nbytes} bytes: {error}") from error
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = -(-(self._base + MARGIN) // _ALIGNMENT) * _ALIGNMENT
        ctypes.memset(self.address, 0xFF, nbytes)

    def array(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The memory itself as a 1-D array; keeps the memory alive."""
        start = self.address - self._base
        return np.frombuffer(self._map, np.uint8, self.nbytes, start).view(dtype)

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.nbytes)
