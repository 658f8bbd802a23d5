"""The products of fp32 gradients on tensor cores: scores, gradients, and what is written of them."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.tf32_fragments import EPSILON, normal

KERNEL = """
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/tf32_products.cuh"
using Tile = FloatTile<64, true>;
extern "C" __global__ void test(const float* own, const float* tile, float* scores, float* gradients, int* finite)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const rows = smem + Tile::bytes(32);
    for (int i = threadIdx.x; i < 32 * 64; i += 32)
        *reinterpret_cast<float*>(smem + Tile::offset(i / 64, i % 64 / 4) + i % 4 * 4) = own[i];
    for (int i = threadIdx.x; i < 16 * 64; i += 32)
        *reinterpret_cast<float*>(rows + Tile::offset(i / 64, i % 64 / 4) + i % 4 * 4) = tile[i];
    __syncthreads();
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    float s[2][2][4];
    multiply_head_tf32<Tile, 16>(s, shared_address(smem), ldmatrix_rows_first<Tile>(), shared_address(rows),
                                 ldmatrix_cols_first<Tile>());
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 2; ++n)
            for (int e = 0; e < 4; ++e) scores[(16 * m + e / 2 * 8 + g) * 16 + 8 * n + 2 * t + e % 2] = s[m][n][e];
    TransposedGradients<64, 2> sums = {};
    multiply_rows_tf32(sums, s, rows, ColumnPairs<Tile>::in_order());
    const View<float, 4> to = {gradients, {0, 0, 64, 1}};
    finite[threadIdx.x] = write_transposed_rows<Tile::COLS>(gradients, to, 30, sums, 2.0f);
}
"""


def test_scores_and_gradients(cache: BuildCache) -> None:
    """S = X Y^T and 2 S Y to about the precision of fp32; rows from the 30th on are not written."""
    kernel = SmallKernel(KERNEL, cache, smem=48 * 256)
    x, y = normal(1, 32, 64), normal(2, 16, 64)
    empty, none = np.full((32, 64), -7, np.float32), np.zeros((8, 4), np.int32)
    got = kernel(own=x, tile=y, scores=np.zeros((32, 16), np.float32), gradients=empty, finite=none)
    s = x.astype(np.float64) @ y.astype(np.float64).T
    np.testing.assert_allclose(got["scores"], s, rtol=0, atol=8 * EPSILON * (np.abs(x) @ np.abs(y).T).max())
    gradients = 2 * got["scores"].astype(np.float64) @ y
    scale = 2 * (np.abs(got["scores"]) @ np.abs(y)).max()
    np.testing.assert_allclose(got["gradients"][:30], gradients[:30], rtol=0, atol=8 * EPSILON * scale)
    assert (got["gradients"][30:] == -7).all()
    assert got["finite"].all()
    x[11] = np.nan
    got = kernel(own=x, tile=y, scores=np.zeros((32, 16), np.float32), gradients=empty, finite=none)
    np.testing.assert_array_equal(np.isfinite(got["gradients"]).all(axis=1), np.arange(32) != 11)
    np.testing.assert_array_equal(got["finite"].all(axis=0), [True, False, True, True])  # lanes t have rows 2t, 2t + 1
    assert not got["finite"][:, 1].any()
