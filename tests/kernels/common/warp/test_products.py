"""Products of tiles by warps that own rows: operands kept or read again, columns shared out."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/products.cuh"
using Tile = SharedTile<64, SWIZZLED>;
extern "C" __global__ void test(const __half* x, const __half* y, float* scores, float* product)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const y_tile = smem + Tile::bytes(32);
    for (int tile = 0; tile < 2; ++tile)
        for (int i = threadIdx.x; i < 32 * 64; i += 64)
            reinterpret_cast<__half*>(smem + tile * Tile::bytes(32) + Tile::offset(i / 64, i % 64 / 8))[i % 8] =
                (tile == 0 ? x : y)[i];
    __syncthreads();
    // Both warps own all 32 rows of x. Of the rows of y, the columns of S, they have 16 each.
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    OwnRows<Tile, 2, KEPT> own(shared_address(smem) + ldmatrix_rows_first<Tile>());
    own.keep();
    const SharedAddress y_rows = shared_address(y_tile) + ldmatrix_cols_first<Tile>() + Tile::bytes(16 * warp);
    float s[2][2][4];
    multiply_over_head<__half, 2>(s, own, y_rows);
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 2; ++n)
            for (int e = 0; e < 4; ++e)
                scores[(16 * m + e / 2 * 8 + g) * 32 + 16 * warp + 8 * nth_piece<2>(n) + 2 * t + e % 2] = s[m][n][e];
    // A warp's S, rounded, times the rows of y that made it: its part of the sum, all columns; then the half of them.
    uint32_t a[2][4];
    as_operand<__half>(a, s, 0);
    const SharedAddress rows = shared_address(y_tile) + ldmatrix_rows_first<Tile>() + Tile::bytes(16 * warp);
    float sums[2][8][4];
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 8; ++n)
            for (int e = 0; e < 4; ++e) sums[m][n][e] = 1.0f;
    multiply_over_rows<__half, Tile>(sums, a, rows);
    float half[2][4][4] = {};
    multiply_over_rows<__half, Tile, 2>(half, a, Tile::advance(rows, 2 * 1));
    for (int m = 0; m < 2; ++m)
        for (int e = 0; e < 4; ++e) {
            float* const to = product + (warp * 2 * 32 + 16 * m + e / 2 * 8 + g) * 64 + 2 * t + e % 2;
            for (int n = 0; n < 8; ++n) to[8 * n] = sums[m][n][e];
            for (int n = 0; n < 4; ++n) to[32 * 64 + 8 * (2 + nth_piece<2>(n))] = half[m][n][e];
        }
}
"""


@pytest.mark.parametrize(("swizzled", "kept"), [("true", "false"), ("false", "true")])
def test_products_of_own_rows(swizzled: str, kept: str, cache: BuildCache) -> None:
    """Whole numbers, whose products and sums are exact in 16 bits too."""
    kernel = SmallKernel(
        KERNEL.replace("SWIZZLED", swizzled).replace("KEPT", kept), cache, threads=64, smem=2 * 32 * (128 + 16)
    )
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-2, 3, (32, 64)).astype(np.float16) for _ in range(2))
    empty = np.full((2, 2, 32, 64), np.nan, np.float32)
    got = kernel(x=x, y=y, scores=np.zeros((32, 32), np.float32), product=empty)
    s, rows = x.astype(np.float64) @ y.astype(np.float64).T, y.astype(np.float64)
    np.testing.assert_array_equal(got["scores"], s)
    second = np.arange(64) // 16 % 2 == 1  # of two sharers by turns, 16 columns at a time
    for warp in range(2):
        keys = slice(16 * warp, 16 * warp + 16)
        part = s[:, keys] @ rows[keys]
        np.testing.assert_array_equal(got["product"][warp, 0], 1 + part)
        np.testing.assert_array_equal(got["product"][warp, 1][:, second], part[:, second])
        assert np.isnan(got["product"][warp, 1][:, ~second]).all()
