"""Tiles of floats whose depth runs down the rows."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("swizzled", [True, False])
def test_tiles_of_floats_make_products(swizzled: bool, cache: BuildCache) -> None:
    """X Y^T by ldmatrix, then (X Y^T) Y with D as the A operand."""
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/tile/shared_tile.cuh"
        #include "common/warp/deep_floats.cuh"
        #include "common/warp/matrix_lanes.cuh"
        using Tile = FloatTile<64, SWIZZLED>;
        extern "C" __global__ void test(const float* x, const float* y, float* scores, float* product, float* again)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            unsigned char* const y_tile = smem + Tile::bytes(16);
            for (int i = threadIdx.x; i < 16 * 64; i += 32) {
                const int at = Tile::offset(i / 64, i % 64 / 4) + i % 4 * 4;
                *reinterpret_cast<float*>(smem + at) = x[i];
                *reinterpret_cast<float*>(y_tile + at) = y[i];
            }
            __syncthreads();
            const SharedAddress x_row = shared_address(smem) + ldmatrix_rows_first<Tile>();
            const SharedAddress y_row = shared_address(y_tile) + ldmatrix_cols_first<Tile>();
            float s[1][2][4] = {};
            for (int step = 0; step < 8; ++step) {
                uint32_t both[4];
                Tf32A a[1];
                Tf32B b[2];
                ldmatrix(both, Tile::advance(x_row, 2 * step));
                a[0].set(both);
                ldmatrix(both, Tile::advance(y_row, 2 * step));
                for (int i = 0; i < 4; ++i) b[i / 2].set(i % 2, __uint_as_float(both[i]));
                multiply_tf32x3(s, 0, a, b);
            }
            const DeepFloats<Tile> deep;
            const DeepRows<Tile> vectors;
            const int g = threadIdx.x / 4, t = threadIdx.x % 4;
            for (int col = 0; col < 64; col += 8) {
                float d[1][1][4] = {};
                for (int n = 0; n < 2; ++n) {
                    Tf32A a[1];
                    Tf32B b[1];
                    for (int i = 0; i < 4; ++i) a[0].set(i, s[0][n][i % 2 * 2 + i / 2]);
                    deep.read(b[0], y_tile + Tile::bytes(8 * n), col / 8);
                    multiply_tf32x3(d, 0, a, b);
                }
                for (int i = 0; i < 4; ++i) product[(g + i / 2 * 8) * 64 + col + 2 * t + i % 2] = d[0][0][i];
            }
            for (int group = 0; group < 2; ++group) {
                float d[1][4][4] = {};
                for (int n = 0; n < 2; ++n) {
                    Tf32A a[1];
                    Tf32B b[4];
                    for (int i = 0; i < 4; ++i) a[0].set(i, s[0][n][i % 2 * 2 + i / 2]);
                    vectors.read(b, y_tile + Tile::bytes(8 * n), group);
                    multiply_tf32x3(d, 0, a, b);
                }
                for (int j = 0; j < 4; ++j)
                    for (int i = 0; i < 4; ++i)
                        again[(g + i / 2 * 8) * 64 + 32 * group + 8 * t + i % 2 * 4 + j] = d[0][j][i];
            }
            for (int n = 0; n < 2; ++n)
                for (int i = 0; i < 4; ++i) scores[(g + i / 2 * 8) * 16 + 8 * n + 2 * t + i % 2] = s[0][n][i];
        }
        """.replace("SWIZZLED", str(swizzled).lower()),
        cache,
        smem=2 * 16 * (256 + 16),
    )
    x, y = (np.random.default_rng(seed).integers(-9, 10, (16, 64)).astype(np.float32) for seed in (9, 10))
    product = np.zeros((16, 64), np.float32)
    got = kernel(x=x, y=y, scores=np.zeros((16, 16), np.float32), product=product, again=product)
    np.testing.assert_array_equal(got["scores"], x @ y.T)
    np.testing.assert_array_equal(got["product"], x @ y.T @ y)
    np.testing.assert_array_equal(got["again"], got["product"])


@pytest.mark.parametrize("swizzled", [True, False])
@pytest.mark.parametrize("HS", [32, 64, 96, 128])
def test_reads_meet_no_bank_conflict(HS: int, swizzled: bool, cache: BuildCache) -> None:
    """A read of single floats by a warp, and one of chunks by each group of eight lanes, is from all 32 banks."""
    kernel = SmallKernel(
        """
        #include "common/tile/shared_tile.cuh"
        #include "common/warp/deep_floats.cuh"
        #include "common/warp/matrix_lanes.cuh"
        using Tile = FloatTile<COLS, SWIZZLED>;
        extern "C" __global__ void test(int* floats, int* chunks)
        {
            const DeepFloats<Tile> deep;
            const DeepRows<Tile> vectors;
            floats[threadIdx.x] = deep.even;
            floats[32 + threadIdx.x] = deep.odd();
            chunks[threadIdx.x] = ldmatrix_rows_first<Tile>();
            chunks[32 + threadIdx.x] = ldmatrix_cols_first<Tile>();
            chunks[64 + threadIdx.x] = vectors.even;
            chunks[96 + threadIdx.x] = vectors.odd;
        }
        """.replace("COLS", str(HS)).replace("SWIZZLED", str(swizzled).lower()),
        cache,
    )
    got = kernel(floats=np.zeros((2, 32), np.int32), chunks=np.zeros((16, 8), np.int32))
    np.testing.assert_array_equal(np.sort(got["floats"] // 4 % 32, axis=1), np.tile(np.arange(32), (2, 1)))
    np.testing.assert_array_equal(np.sort(got["chunks"] // 16 % 8, axis=1), np.tile(np.arange(8), (16, 1)))
