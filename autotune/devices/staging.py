"""Reading large buffers off a device in pieces: while one piece arrives, other threads work on those before it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Fetch = Callable[[Bytes, int], None]
"""Fill an array with a buffer's bytes from an offset on; called in the reader's own thread."""

_PIECE = 4 << 20  # so that an output of some megabytes is copied on while it arrives, too
_PIECES = 8


class Staging:
    """A few arrays that pieces arrive in, made by `make` (a number of bytes) when first needed.

    A copy into memory that the device can write directly is several times as fast as one into fresh pages, and what is
    done with a piece (copying it on, comparing it) happens in other threads meanwhile. Used by one thread.
    """

    def __init__(self, make: Callable[[int], Bytes], piece: int = _PIECE) -> None:
        self._make = make
        self._piece = piece
        self._slots: list[Bytes] = []
        self._pool = ThreadPoolExecutor(_PIECES, thread_name_prefix="staging")

    def read(self, nbytes: int, fetch: Fetch) -> Bytes:
        """All bytes of a buffer, in a new array."""
        whole = np.empty(nbytes, np.uint8)

        def keep(piece: Bytes, start: int) -> bool:
            whole[start : start + piece.size] = piece
            return True

        self._each(nbytes, fetch, keep)
        return whole

    def equals(self, data: NDArray[Any], fetch: Fetch) -> bool:
        """Whether a buffer holds exactly the bytes of `data`, a contiguous array of the buffer's size."""
        expected = data.reshape(-1).view(np.uint8)

        def same(piece: Bytes, start: int) -> bool:
            return same_bits(piece, expected[start : start + piece.size])

        return self._each(expected.size, fetch, same)

    def close(self) -> None:
        """Let go of the arrays."""
        self._slots.clear()

    def _each(self, nbytes: int, fetch: Fetch, use: Callable[[Bytes, int], bool]) -> bool:
        """Whether `use` said yes to every piece."""
        if not self._slots:
            self._slots = [self._make(self._piece) for _ in range(_PIECES)]
        busy: list[Future[bool]] = []
        try:
            for number, start in enumerate(range(0, nbytes, self._piece)):
                if number >= _PIECES:
                    busy[number - _PIECES].result()  # its slot is free again
                piece = self._slots[number % _PIECES][: min(self._piece, nbytes - start)]
                fetch(piece, start)
                busy.append(self._pool.submit(use, piece, start))
        finally:
            answers = [future.result() for future in busy]
        return all(answers)


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two contiguous 1-D arrays hold the same bytes."""
    word = np.uint64 if one.nbytes % 8 == 0 else np.uint8
    return one.nbytes == other.nbytes and np.array_equal(one.view(word), other.view(word))
