"""Finished fragments: rounded into tiles, whole rows found that are not finite, words exchanged by four lanes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("scaled", [False, True])
def test_fragments_in_tiles(scaled: bool, cache: BuildCache) -> None:
    """Two warps share out the columns of 32 rows; each places its part, times a factor (of all rows, or of each)."""
    one = "finite[threadIdx.x] = place_rows<__half, Tile, 2>(smem, 0, d, 0.5f, 2 * part);"
    many = "finite[threadIdx.x] = place_scaled_rows<__half, Tile, 2>(smem, d, factors, part);"
    kernel = SmallKernel(
        """
        #include "common/warp/fragments.cuh"
        using Tile = SharedTile<64, true>;
        extern "C" __global__ void test(const float* x, int* finite, __half* y)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            const int part = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
            float d[2][4][4], factors[4];
            for (int r = 0; r < 4; ++r) factors[r] = 1.0f + (8 * r + g) % 4;
            for (int m = 0; m < 2; ++m)
                for (int n = 0; n < 4; ++n)
                    for (int e = 0; e < 4; ++e)
                        d[m][n][e] =
                            x[(16 * m + e / 2 * 8 + g) * 64 + 8 * (2 * part + nth_piece<2>(n)) + 2 * t + e % 2];
            PLACE
            (void)factors;
            __syncthreads();
            for (int i = threadIdx.x; i < 32 * 64; i += 64)
                y[i] = reinterpret_cast<const __half*>(smem + Tile::offset(i / 64, i % 64 / 8))[i % 8];
        }
        """.replace("PLACE", many if scaled else one),
        cache,
        threads=64,
        smem=32 * 128,
    )
    x = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
    x[5, 3], x[20, 40] = np.nan, 1e30  # the second overflows when it is rounded; columns of warp 0 and warp 0
    x[9, 17] = -np.inf  # of warp 1
    got = kernel(x=x, finite=np.zeros((2, 8, 4), np.int32), y=np.zeros((32, 64), np.float16))
    factor = 1 + np.arange(32)[:, None] % 4 if scaled else np.float32(0.5)
    with np.errstate(over="ignore"):
        rounded = (x * factor).astype(np.float32).astype(np.float16)
    np.testing.assert_array_equal(got["y"], rounded)
    finite: NDArray[np.bool_] = np.isfinite(rounded)
    warps = np.asarray(finite.reshape(32, 2, 2, 16).all(axis=(1, 3)))  # row by sharer: they take turns by 16 columns
    rows_of_lane = np.asarray(warps.reshape(4, 8, 2).all(axis=0))  # a lane has rows g, g + 8, ...
    np.testing.assert_array_equal(got["finite"], np.repeat(rows_of_lane.T[..., None], 4, axis=2))
    assert not rows_of_lane[[5, 4, 1], [0, 0, 1]].any()


def test_four_lanes_exchange_words(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/warp/fragments.cuh"
        extern "C" __global__ void test(unsigned* x)
        {
            uint32_t mine[4];
            for (int i = 0; i < 4; ++i) mine[i] = x[4 * threadIdx.x + i];
            transpose_quad(mine);
            for (int i = 0; i < 4; ++i) x[4 * threadIdx.x + i] = mine[i];
        }
        """,
        cache,
    )
    x = np.random.default_rng(2).permutation(128).astype(np.int32).reshape(8, 4, 4)
    np.testing.assert_array_equal(kernel(x=x)["x"], x.transpose(0, 2, 1))
