"""Loads and stores of several words of shared memory by address."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/ptx/shared_vectors.cuh"
extern "C" __global__ void test(const float* in, float* pairs, float* fours)
{
    __shared__ __align__(16) float memory[256];
    const int lane = threadIdx.x;
    const SharedAddress start = shared_address(memory);
    const float* const mine = in + 4 * lane;
    store_shared(start + 16 * (31 - lane), mine[0], mine[1], mine[2], mine[3]);
    const uint32_t words[4] = {1u + 4 * lane, 2u + 4 * lane, 3u + 4 * lane, 4u + 4 * lane};
    store_shared(start + 512 + 16 * lane, words);
    store_shared_word(start + 512 + 16 * lane, load_shared_word(start + 512 + 16 * lane) + 1000);
    __syncwarp();
    const float2 pair = load_shared_pair(start + 8 * lane);
    pairs[2 * lane] = pair.x;
    pairs[2 * lane + 1] = pair.y;
    uint32_t all[4];
    load_shared(all, start + 512 + 16 * (lane ^ 5));
    for (int i = 0; i < 4; ++i) fours[4 * lane + i] = static_cast<float>(all[i]);
}
"""


def test_pairs_and_fours(cache: BuildCache) -> None:
    x = np.random.default_rng(1).standard_normal((32, 4)).astype(np.float32)
    got = SmallKernel(KERNEL, cache)(**{"in": x}, pairs=np.zeros((32, 2), np.float32), fours=np.zeros_like(x))
    np.testing.assert_array_equal(got["pairs"].ravel(), x[::-1].ravel()[:64])
    words = np.arange(1, 129, dtype=np.float32).reshape(32, 4)
    words[:, 0] += 1000
    np.testing.assert_array_equal(got["fours"], words[np.arange(32) ^ 5])
