"""A step of a warp that owns queries: dS adds to dQ, chunk by chunk or with the next chunk's products under way."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.attention.backward_steps import assert_product, operands, step_of

KERNEL = """
#include "common/attention/query_step.cuh"
#include "common/warp/matrix_lanes.cuh"
using Tile = SharedTile<32, true>;
__device__ void fill(unsigned char* tile, const __half* from, int rows)
{
    for (int i = threadIdx.x; i < rows * 32; i += 32)
        reinterpret_cast<__half*>(tile + Tile::offset(i / 32, i % 32 / 8))[i % 8] = from[i];
}
extern "C" __global__ void test(const __half* q, const __half* dout, const __half* k, const __half* v,
                                const float* sums, float* dq)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const dout_tile = smem + Tile::bytes(32);
    unsigned char* const k_tile = dout_tile + Tile::bytes(32);
    unsigned char* const v_tile = k_tile + Tile::bytes(64);
    fill(smem, q, 32);
    fill(dout_tile, dout, 32);
    fill(k_tile, k, 64);
    fill(v_tile, v, 64);
    __syncthreads();
    const Scores<true> scores(64, 64, 0.5f);
    const int rows_first = ldmatrix_rows_first<Tile>(), cols_first = ldmatrix_cols_first<Tile>();
    OwnRows<Tile, 2, false> queries(shared_address(smem) + rows_first);
    OwnRows<Tile, 2, true> douts(shared_address(dout_tile) + rows_first);
    douts.keep();
    RowSums rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = reinterpret_cast<const RowSums*>(sums)[8 * r + threadIdx.x / 4];
    float sum[2][4][4];
    for (int i = 0; i < 32; ++i) sum[i / 16][i / 4 % 4][i % 4] = 1.0f;
    const QueryStep<__half, 16, 64, true, Tile, 2, false, true> step = {
        scores, queries, douts, rows, sum, rows_first, cols_first, shared_address(k_tile), shared_address(v_tile)};
    step.run<OVERLAPPED>(32, KEY, MASKED);
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 4; ++n)
            for (int e = 0; e < 4; ++e)
                dq[(16 * m + e / 2 * 8 + threadIdx.x / 4) * 32 + 8 * n + threadIdx.x % 4 * 2 + e % 2] = sum[m][n][e];
}
"""


@pytest.mark.parametrize(("overlapped", "masked"), [(False, True), (True, False), (True, True)])
def test_a_step_of_sixty_four_keys(overlapped: bool, masked: bool, cache: BuildCache) -> None:
    """Queries 32 to 63, keys from 10 on (unmasked: from -40 on, all of which they see)."""
    key = 10 if masked else -40
    text = KERNEL.replace("OVERLAPPED", str(overlapped).lower()).replace("KEY,", f"{key},")
    kernel = SmallKernel(text.replace("MASKED", str(masked).lower()), cache, smem=(32 + 32 + 64 + 64) * 64)
    x = operands(2, 32, 64, 32)
    got = kernel(**{n: x[n] for n in ("q", "dout", "k", "v", "sums")}, dq=np.zeros((32, 32), np.float32))["dq"]
    query, keys = np.mgrid[32:64, key : key + 64]
    want = step_of(x, 0.5, (keys <= query) & (keys < 64))
    assert_product(got, want.ds, x["k"], start=1.0)
