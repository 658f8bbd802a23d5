"""dQ of a tile of queries by all warps of a block, from dS in shared memory."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/query_share_mma.cuh"
using Pairs = SharedTile<32, true>;  // 48 keys by 32 queries
using Tile = SharedTile<64, true>;   // 48 keys by 64 columns
struct Numbers {
    __device__ long long number(int batch, int head, int query) const { return (batch * 2 + head) * 64 + query; }
};
extern "C" __global__ void test(const __half* ds, const __half* k, float* sums, float* dq)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const k_tile = smem + Pairs::bytes(48);
    for (int i = threadIdx.x; i < 48 * 32; i += 128)
        reinterpret_cast<__half*>(smem + Pairs::offset(i / 32, i % 32 / 8))[i % 8] = ds[i];
    for (int i = threadIdx.x; i < 48 * 64; i += 128)
        reinterpret_cast<__half*>(k_tile + Tile::offset(i / 64, i % 64 / 8))[i % 8] = k[i];
    __syncthreads();
    using Share = QueryShare<__half, Tile, Pairs, 48, WARPS_M, 4 / WARPS_M, PARTS>;
    const Share share(threadIdx.x / 32, ldmatrix_rows_first<Tile>());
    share.add(share.sums(sums, Numbers(), 1, 1, 32), smem, k_tile);
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;  // pieces of 16 rows by 8 columns, eight in a row
    for (int piece = warp; piece < 16; piece += 4) {
        float x[4];
        FragmentSums::read(x, sums + (3 * 64 + 32) * 64 + piece * 128);
        for (int e = 0; e < 4; ++e)
            dq[(piece / 8 * 16 + e / 2 * 8 + lane / 4) * 64 + piece % 8 * 8 + lane % 4 * 2 + e % 2] = x[e];
    }
}
"""


@pytest.mark.parametrize(("warps_m", "parts"), [(2, 1), (2, 2), (1, 1)])
def test_all_of_dq_is_shared_out(warps_m: int, parts: int, cache: BuildCache) -> None:
    """It is added to what other blocks have added, in the place of batch 1, head 1, queries from 32 on."""
    kernel = SmallKernel(
        KERNEL.replace("WARPS_M", str(warps_m)).replace("PARTS", str(parts)), cache, threads=128, smem=48 * (64 + 128)
    )
    rng = np.random.default_rng(1)
    ds, k = (rng.integers(-9, 10, (48, cols)).astype(np.float16) for cols in (32, 64))
    got = kernel(ds=ds, k=k, sums=np.full((4, 64, 64), 0.5, np.float32), dq=np.zeros((32, 64), np.float32))
    np.testing.assert_array_equal(got["dq"], ds.T.astype(np.float64) @ k + 0.5)
    assert (got["sums"][:3] == 0.5).all()
    assert (got["sums"][3, :32] == 0.5).all()
