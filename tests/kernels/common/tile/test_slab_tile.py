"""Where elements of tiles in slabs lie, as TMA places them; distances from one wgmma's operand to the next one's."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.ptx.test_wgmma import swizzled

SHAPES = ((8, 16), (16, 32), (24, 64), (16, 96), (64, 128), (8, 80))


def test_chunks_lie_as_tma_places_them(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/tile/slab_tile.cuh"
        template <class Tile, int COLS>
        __device__ void report(int*& places, int*& steps)
        {
            for (int row = 0; row < Tile::ROWS; ++row)
                for (int col = 0; col < COLS; col += 8) *places++ = Tile::offset(row, col);
            for (int step = 0; step < COLS / 16; ++step) *steps++ = Tile::along_columns(step);
            for (int step = 0; step < Tile::ROWS / 16; ++step) *steps++ = Tile::along_rows(step);
            *steps++ = Tile::BYTES;
        }
        extern "C" __global__ void test(int* places, int* steps)
        {
            if (threadIdx.x == 0) { CALLS }
        }
        """.replace("CALLS", "".join(f"report<SlabTile<{r}, {c}>, {c}>(places, steps);" for r, c in SHAPES)),
        cache,
    )
    want_places, want_steps = [], []
    for rows, cols in SHAPES:
        slab = 16 if cols <= 16 else 32 if cols <= 32 else 64
        slab_bytes = rows * slab * 2
        row, col = (axis.astype(np.int64) for axis in np.mgrid[0:rows, 0:cols:8])
        want_places.append(swizzled(col // slab * slab_bytes + row * slab * 2 + col % slab * 2, slab * 2).reshape(-1))
        want_steps += [16 * s // slab * slab_bytes + 16 * s % slab * 2 for s in range(cols // 16)]
        want_steps += [16 * s * slab * 2 for s in range(rows // 16)]
        want_steps.append(-(-cols // slab) * slab_bytes)
    places = np.concatenate(want_places)
    got = kernel(places=np.zeros(places.size, np.int32), steps=np.zeros(len(want_steps), np.int32))
    np.testing.assert_array_equal(got["places"], places)
    np.testing.assert_array_equal(got["steps"], want_steps)


def test_narrow_slabs_and_columns_within(cache: BuildCache) -> None:
    """A slab's width of one's own; where columns begin that an operand has."""
    kernel = SmallKernel(
        """
        #include "common/tile/slab_tile.cuh"
        extern "C" __global__ void test(int* found)
        {
            using Narrow = SlabTile<24, 80, 16>;
            using Wide = SlabTile<24, 128>;
            if (threadIdx.x != 0) return;
            found[0] = Narrow::BYTES;
            found[1] = Narrow::offset(4, 72);
            found[2] = Narrow::from_column(32);
            found[3] = Wide::from_column(96);
        }
        """,
        cache,
    )
    got = kernel(found=np.zeros(4, np.int32))["found"]
    np.testing.assert_array_equal(got, [5 * 24 * 32, 4 * 24 * 32 + 4 * 32 + 0, 2 * 24 * 32, 24 * 128 + 64])
