"""P and dS on their way through shared memory: as they are written they are read, and multiplied with."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/pair_tiles.cuh"
using Pairs = SharedTile<32, SWIZZLED>;  // 64 keys by 32 queries
using Tile = SharedTile<64, SWIZZLED>;   // 32 queries by 64 columns
extern "C" __global__ void test(const float* x, const __half* y, float* seen, int* same, float* product)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const tile = smem + Pairs::bytes(64);
    for (int i = threadIdx.x; i < 32 * 64; i += 64)
        reinterpret_cast<__half*>(tile + Tile::offset(i / 64, i % 64 / 8))[i % 8] = y[i];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const PairWriter<Pairs, STMATRIX> writer(32 * warp, lane);  // each has 32 keys
    const int rows_first = ldmatrix_rows_first<Pairs>();
    float s[2][4][4];
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 4; ++n)
            for (int e = 0; e < 4; ++e)
                s[m][n][e] = x[(32 * warp + 16 * m + e / 2 * 8 + g) * 32 + 8 * n + 2 * t + e % 2];
    int wrong = 0;
    for (int column = 0; column < 32; column += 16) {
        uint32_t a[2][4], back[2][4];
        as_operand<__half>(a, s, column / 8);
        writer.write(smem, a, column);
        __syncwarp();
        read_pairs<Pairs>(back, shared_address(smem) + Pairs::bytes(32 * warp) + rows_first, column);
        for (int i = 0; i < 8; ++i) wrong += a[i / 4][i % 4] != back[i / 4][i % 4];
    }
    same[threadIdx.x] = wrong == 0;
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * 32; i += 64)
        seen[i] = to_float(reinterpret_cast<const __half*>(smem + Pairs::offset(i / 32, i % 32 / 8))[i % 8]);
    // Warps take turns with the columns; both have all 64 keys.
    float sums[4][4][4] = {};
    multiply_pairs<__half, Tile, Pairs, 2>(sums, smem, shared_address(tile), 0, rows_first,
                                           Tile::advance(ldmatrix_rows_first<Tile>(), 2 * warp));
    for (int m = 0; m < 4; ++m)
        for (int n = 0; n < 4; ++n)
            for (int e = 0; e < 4; ++e)
                product[(16 * m + e / 2 * 8 + g) * 64 + 8 * (2 * warp + nth_piece<2>(n)) + 2 * t + e % 2] =
                    sums[m][n][e];
}
"""


@pytest.mark.parametrize(("swizzled", "stmatrix"), [("true", "true"), ("true", "false"), ("false", "false")])
def test_pairs_arrive(swizzled: str, stmatrix: str, cache: BuildCache) -> None:
    kernel = SmallKernel(
        KERNEL.replace("SWIZZLED", swizzled).replace("STMATRIX", stmatrix), cache, threads=64, smem=64 * 80 + 32 * 144
    )
    rng = np.random.default_rng(1)
    x, y = rng.integers(-9, 10, (64, 32)).astype(np.float32), rng.integers(-9, 10, (32, 64)).astype(np.float16)
    got = kernel(x=x, y=y, seen=np.zeros_like(x), same=np.zeros(64, np.int32), product=np.zeros((64, 64), np.float32))
    assert got["same"].all()
    np.testing.assert_array_equal(got["seen"], x)
    np.testing.assert_array_equal(got["product"], x @ y.astype(np.float32))
