"""Where chunks of a tile lie."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

TILE_SHAPES = [(HS, swizzled) for HS in (16, 32, 48, 64, 80, 96, 128, 192, 256) for swizzled in (True, False)]


def test_tiles_have_no_bank_conflicts(cache: BuildCache) -> None:
    """Chunks lie apart, eight rows of a column and eight neighbours in a row in all banks; `advance` agrees."""
    calls = "".join(f"report<SharedTile<{c}, {str(s).lower()}>>(places, wrong);" for c, s in TILE_SHAPES)
    kernel = SmallKernel(
        """
        #include "common/tile/shared_tile.cuh"
        template <class Tile>
        __device__ void report(int*& places, int* wrong)
        {
            for (int row = 0; row < 16; ++row)
                for (int chunk = 0; chunk < Tile::CHUNKS; ++chunk) {
                    places[row * Tile::CHUNKS + chunk] = Tile::offset(row, chunk);
                    for (int by = 2; chunk < 2 && chunk + by < Tile::CHUNKS; by += 2)
                        if (Tile::advance(Tile::offset(row, chunk), by) != Tile::offset(row, chunk + by)) ++*wrong;
                    if (Tile::offset(row + 8, chunk) != Tile::offset(row, chunk) + Tile::bytes(8)) ++*wrong;
                }
            places += 16 * Tile::CHUNKS;
        }
        extern "C" __global__ void test(int* places, int* wrong)
        {
            if (threadIdx.x == 0) { CALLS }
        }
        """.replace("CALLS", calls),
        cache,
    )
    size = sum(16 * cols // 8 for cols, _ in TILE_SHAPES)
    got = kernel(places=np.full(size, -1, np.int32), wrong=np.zeros(1, np.int32))
    assert got["wrong"][0] == 0
    places = got["places"]
    for cols, swizzled in TILE_SHAPES:
        mine, places = places[: 2 * cols].reshape(16, cols // 8), places[2 * cols :]
        assert (mine % 16 == 0).all()
        assert len(np.unique(mine)) == mine.size
        assert mine.max() < 16 * (2 * cols + (0 if swizzled else 16))
        if swizzled and cols in (48, 80):
            continue  # rows of an odd number of pairs of chunks: two rows in eight meet
        for first in (0, 8):
            banks = mine[first : first + 8] // 16 % 8
            assert (np.sort(banks, axis=0) == np.arange(8)[:, None]).all(), (cols, swizzled)
