"""Buffers read in pieces: every byte arrives, in its place, and one that differs is noticed."""

import numpy as np
import pytest

from autotune.devices.staging import Bytes, Staging

PIECE = 64
SIZES = (0, 1, PIECE - 1, PIECE, PIECE + 1, 4 * PIECE, 11 * PIECE + 7)


class Memory:
    """A device's memory: `fetch` counts the pieces."""

    def __init__(self, nbytes: int) -> None:
        self.content = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
        self.pieces: list[tuple[int, int]] = []

    def fetch(self, piece: Bytes, start: int) -> None:
        self.pieces.append((start, piece.size))
        piece[:] = self.content[start : start + piece.size]


def staging() -> Staging:
    return Staging(lambda nbytes: np.zeros(nbytes, np.uint8), PIECE)


@pytest.mark.parametrize("nbytes", SIZES)
def test_all_bytes_are_read(nbytes: int) -> None:
    memory = Memory(nbytes)
    assert staging().read(nbytes, memory.fetch).tobytes() == memory.content.tobytes()
    assert [start for start, _ in memory.pieces] == list(range(0, nbytes, PIECE))
    assert sum(size for _, size in memory.pieces) == nbytes


@pytest.mark.parametrize("nbytes", SIZES)
def test_one_byte_that_differs_is_noticed(nbytes: int) -> None:
    memory, one = Memory(nbytes), staging()
    assert one.equals(memory.content.copy(), memory.fetch)
    for at in range(0, nbytes, 13):
        other = memory.content.copy()
        other[at] ^= 1
        assert not one.equals(other, memory.fetch)


def test_elements_of_any_type_are_compared_as_bytes() -> None:
    values = np.array([0.0, np.nan, 1.0], np.float32)
    memory = Memory(12)
    memory.content[:] = values.view(np.uint8)
    assert staging().equals(values, memory.fetch)
    assert not staging().equals(np.array([-0.0, np.nan, 1.0], np.float32), memory.fetch)


def test_a_fetch_that_fails_is_passed_on() -> None:
    def fetch(piece: Bytes, start: int) -> None:
        if start == 2 * PIECE:
            raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError, match="the device is gone"):
        staging().read(5 * PIECE, fetch)
