"""Memory that ends at pages nobody may touch, so that an access past its end is a fault and not a wrong number."""

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.confinement import allow_addresses
from autotune.core.errors import LaunchError

_PAGE = mmap.PAGESIZE
_GUARD = 16 << 20  # bytes on either side: only addresses are taken. What lies one page further may be anybody's memory
_ALIGNMENT = 16  # of the start, for vector accesses; sizes that are multiples of 256 get the 256 that CUDA gives
_POISON = 0xFF
_MAP_FAILED = ctypes.c_void_p(-1).value
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # Python 3.13 names it

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NO_LARGE_PAGES = getattr(mmap, "MADV_NOHUGEPAGE", None)
_PROT_NONE = 0


class SparseMemory:
    """`nbytes` of addresses, which take memory page by page as they are written. What was not written reads as 0."""

    def __init__(self, nbytes: int) -> None:
        """Map them.

        Raises:
            LaunchError: the system does not give so many addresses.
        """
        self.nbytes = nbytes
        self._inner = max(1, -(-nbytes // _PAGE)) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        allow_addresses(self._inner)
        address = _libc.mmap(None, self._inner, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if address is None or address == _MAP_FAILED:
            raise LaunchError(f"out of memory: cannot take the addresses of {nbytes} bytes")
        self.address: int = address
        if _NO_LARGE_PAGES is not None:  # else a row might take 2 MiB
            _libc.madvise(address, self._inner, _NO_LARGE_PAGES)

    def array(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The memory itself as a 1-D array; only valid until `close`."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address)).view(dtype)

    def fill(self, byte: int) -> None:
        """All of it is written, unless the byte is 0: that is what it is then."""
        if byte == 0:
            _libc.madvise(self.address, self._inner, mmap.MADV_DONTNEED)
        else:
            ctypes.memset(self.address, byte, self.nbytes)

    def damage(self) -> str | None:
        """It has no neighbourhood that is looked at."""
        return None

    def locate(self, address: int) -> str | None:
        if not self.address <= address < self.address + self._inner:
            return None
        return f"{self.address + self.nbytes - address} bytes before the end"

    def close(self) -> None:
        if self.address:
            _libc.munmap(self.address, self._inner)
            self.address = 0


class GuardedMemory:
    """`nbytes` between two guards of 16 MiB. The end lies against the later one, but for the start's alignment.

    What is left over in the pages (before the start; at most 15 bytes behind the end) holds 0xFF bytes: read, they are
    NaN; written, `damage` tells.
    """

    def __init__(self, nbytes: int) -> None:
        """Map the memory, filled with 0xFF.

        Raises:
            LaunchError: the machine has not that much memory.
        """
        self.nbytes = nbytes
        self._inner = max(1, -(-nbytes // _PAGE)) * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        base = _libc.mmap(None, self._inner + 2 * _GUARD, _PROT_NONE, flags, -1, 0)
        if base is None or base == _MAP_FAILED:
            raise LaunchError(f"out of memory: cannot allocate {nbytes} bytes")
        self._base: int = base
        self._first = base + _GUARD
        self._end = self._first + self._inner
        self.address = self._end - -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        if _libc.mprotect(self._first, self._inner, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
            _libc.munmap(base, self._inner + 2 * _GUARD)
            raise LaunchError(f"out of memory: cannot allocate {nbytes} bytes")
        ctypes.memset(self._first, _POISON, self._inner)

    def array(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The memory itself as a 1-D array; only valid until `close`."""
        return self._bytes(self.address, self.nbytes).view(dtype)

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.nbytes)

    def damage(self) -> str | None:
        """What was written outside of the memory though inside of its pages, in words; repairs it."""
        before = self._bytes(self._first, self.address - self._first)
        after = self._bytes(self.address + self.nbytes, self._end - self.address - self.nbytes)
        said = None
        for part, word in ((before, "before the start"), (after, "past the end")):
            touched = np.flatnonzero(part != _POISON)
            if touched.size:
                distance = len(part) - int(touched[0]) if part is before else int(touched[0])
                said = f"{distance} bytes {word}"
                part[:] = _POISON
        return said

    def locate(self, address: int) -> str | None:
        """`12 bytes past the end` when the address is near this memory, else nothing."""
        if not self._base <= address < self._end + _GUARD:
            return None
        if address < self.address:
            return f"{self.address - address} bytes before the start"
        return f"{address - self.address - self.nbytes} bytes past the end"

    def close(self) -> None:
        if self._base:
            _libc.munmap(self._base, self._inner + 2 * _GUARD)
            self._base = 0

    def _bytes(self, address: int, count: int) -> NDArray[np.uint8]:
        return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
