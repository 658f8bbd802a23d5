"""What warps with the same rows tell one another: numbers combined over all of them, weights of all keys."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/row_exchange.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/warp/reduce.cuh"
using Weights = SharedTile<64, true>;  // two warps have 32 keys each of the same 16 rows; two more have the next ones
using Exchange = RowExchange<Weights, 2, 1, 32>;
extern "C" __global__ void test(const float* x, const float* p, float* largest, float* sum, float* seen)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = threadIdx.x / 64 * 16;
    float* const numbers = reinterpret_cast<float*>(smem + Weights::bytes(32));
    const Exchange exchange = {numbers + row + g,
                               shared_address(smem + Weights::bytes(row)) + ldmatrix_rows_first<Weights>()};
    const int me = sharer<2>();
    float mine[2];
    for (int r = 0; r < 2; ++r) mine[r] = x[me * 32 + row + 8 * r + g];
    exchange.put(mine);
    meet_sharers<2>();
    float all[2];
    exchange.get<Max>(all);
    for (int r = 0; r < 2; ++r) largest[me * 32 + row + 8 * r + g] = all[r];
    exchange.get<Sum>(all);
    for (int r = 0; r < 2; ++r) sum[me * 32 + row + 8 * r + g] = all[r];
    for (int key = 0; key < 32; key += 16) {  // this warp's: they take turns by 16
        uint32_t weights[1][4];
        for (int i = 0; i < 4; ++i) {
            const float* const from = p + (row + i % 2 * 8 + g) * 64 + 2 * key + 16 * me + i / 2 * 8 + 2 * t;
            weights[0][i] = pack<__half>(from[0], from[1]);
        }
        exchange.put(weights, key);
    }
    meet_sharers<2>();
    for (int key = 0; key < 64; key += 16) {  // all keys
        uint32_t weights[1][4];
        exchange.get(weights, key);
        for (int i = 0; i < 4; ++i) {
            const float2 both = unpack_pair<__half>(weights[0][i]);
            float* const to = seen + (me * 32 + row + i % 2 * 8 + g) * 64 + key + i / 2 * 8 + 2 * t;
            to[0] = both.x;
            to[1] = both.y;
        }
    }
    meet_sharers<1>();
}
"""


def test_sharers_tell_one_another(cache: BuildCache) -> None:
    kernel = SmallKernel(KERNEL, cache, threads=128, smem=32 * 128 + 2 * 32 * 4)
    rng = np.random.default_rng(1)
    x, p = (rng.integers(-99, 100, shape).astype(np.float32) for shape in ((2, 32), (32, 64)))
    got = kernel(x=x, p=p, largest=np.zeros_like(x), sum=np.zeros_like(x), seen=np.zeros((2, 32, 64), np.float32))
    np.testing.assert_array_equal(got["largest"], [x.max(axis=0)] * 2)
    np.testing.assert_array_equal(got["sum"], [x.sum(axis=0)] * 2)
    np.testing.assert_array_equal(got["seen"], [p, p])
