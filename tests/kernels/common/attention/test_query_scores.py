"""P and dS of 64 queries, from wgmma's accumulators to shared memory, against NumPy."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/query_scores.cuh"
#include "common/tile/slab_tile.cuh"
using Tile = SlabTile<128, 48, 16>;
extern __shared__ __align__(1024) unsigned char smem[];
extern "C" __global__ void __launch_bounds__(128)
test(const float* s, const float* dp, const float* origins, const float* deltas, __half* p_out, __half* ds_out)
{
    const SharedAddress p_tile = shared_address(smem), ds_tile = p_tile + Tile::BYTES, known = ds_tile + Tile::BYTES;
    float* const rows = reinterpret_cast<float*>(smem + 2 * Tile::BYTES);
    rows[threadIdx.x] = threadIdx.x < 64 ? origins[threadIdx.x] : deltas[threadIdx.x - 64];
    __syncthreads();
    const float of_lane = load_of_lane(known, known + 256);
    float x[24], y[24], own_origins[2], own_deltas[2];
    uint32_t p[3][4], ds[3][4];
    for (int i = 0; i < 24; ++i) {
        const int at = (accumulator_row() + i / 2 % 2 * 8) * 48 + i / 4 * 8 + accumulator_col() + i % 2;
        x[i] = s[at];
        y[i] = dp[at];
    }
    of_rows<false>(own_origins, of_lane);
    weigh_rows(x, Scores<false>(64, 48, 0.5f), own_origins);
    of_rows<true>(own_deltas, of_lane);
    differentiate_rows<__half>(p, ds, x, y, own_deltas);
    place_operands<Tile>(p_tile, 64, p);
    place_operands<Tile>(ds_tile, 64, ds);
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * 48; i += 128) {
        const int at = Tile::offset(64 + i / 48, i % 48 / 8 * 8) + i % 8 * 2;
        p_out[i] = *reinterpret_cast<const __half*>(smem + at);
        ds_out[i] = *reinterpret_cast<const __half*>(smem + Tile::BYTES + at);
    }
}
"""


def test_weights_and_their_gradients(cache: BuildCache) -> None:
    """Every row has its own origin and delta; tiles have narrow slabs, and the group the second 64 rows."""
    random = np.random.default_rng(0)
    s, dp = random.standard_normal((2, 64, 48)).astype(np.float32)
    origins, deltas = random.standard_normal((2, 64)).astype(np.float32)
    got = SmallKernel(KERNEL, cache, threads=128, smem=2 * 128 * 48 * 2 + 512)(
        s=s, dp=dp, origins=origins, deltas=deltas,
        p_out=np.zeros((64, 48), np.float16), ds_out=np.zeros((64, 48), np.float16),
    )  # fmt: skip
    p = np.exp2(s * 0.5 / np.log(2) - origins[:, None])
    np.testing.assert_allclose(got["p_out"].astype(float), p, rtol=1e-3)
    np.testing.assert_allclose(got["ds_out"].astype(float), p * (dp - deltas[:, None]), rtol=1e-3, atol=1e-4)
