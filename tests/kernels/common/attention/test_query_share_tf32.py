"""dQ in fp32 from dS in shared memory: where pairs lie, and the product added to rows."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.tf32_fragments import EPSILON, normal

KERNEL = """
#include "common/attention/query_share_tf32.cuh"
#include "common/tile/shared_tile.cuh"
using Tile = FloatTile<64, true, USED>;
using Pairs = PairTile<32>;
using Share = QueryShare<Tile, Pairs, 2, 1, 4>;  // 32 columns of 32 queries
extern "C" __global__ void test(const float* ds, const float* k, float* dq)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const k_tile = smem + Pairs::bytes(16);
    for (int i = threadIdx.x; i < 16 * 64; i += 64)
        *reinterpret_cast<float*>(k_tile + Tile::offset(i / 64, i % 64 / 4) + i % 4 * 4) = k[i];
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    if (warp == 0) {
        float x[4][4];
        for (int n = 0; n < 4; ++n)
            for (int e = 0; e < 4; ++e) x[n][e] = ds[(e / 2 * 8 + g) * 32 + 8 * n + 2 * t + e % 2];
        Pairs::write(smem, Pairs::place_of_lane(), x, 0);
    }
    __syncthreads();
    const Share share(threadIdx.x, 0, 32 * warp);
    Share::Sums sum = {}, rest = {};
    share.multiply(sum, rest, smem, k_tile);
    add_tiles(sum, rest);
    const View<float, 4> view = {dq, {0, 0, 64 * STEP, STEP}};
    Share::add(dq + 32 * warp * STEP, view, 29, USED - 32 * warp, sum, 0.5f);
}
"""


@pytest.mark.parametrize(("step", "used"), [(1, 64), (2, 64), (1, 40)])
def test_dq_of_sixteen_keys(step: int, used: int, cache: BuildCache) -> None:
    """Added to what is there, in 29 of 32 rows and the columns that dQ has, by vectors or one by one."""
    code = KERNEL.replace("STEP", str(step)).replace("USED", str(used))
    kernel = SmallKernel(code, cache, threads=64, smem=16 * (128 + 256))
    ds, k = normal(1, 16, 32), normal(2, 16, 64)
    got = kernel(ds=ds, k=k, dq=np.ones((32, 64, step), np.float32))["dq"]
    want = 1 + 0.5 * ds.T.astype(np.float64) @ k
    atol = 8 * EPSILON * (np.abs(ds).T @ np.abs(k)).max()
    np.testing.assert_allclose(got[:29, :used, 0], want[:29, :used], rtol=0, atol=atol)
    assert (got[29:] == 1).all()
    assert (got[:, used:] == 1).all()
    assert (got[..., 1:] == 1).all()
