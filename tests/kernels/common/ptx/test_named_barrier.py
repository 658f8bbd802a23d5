"""Barriers of some of a block's warps."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_named_barrier(cache: BuildCache) -> None:
    """Two pairs of warps, each with a barrier and a number of rounds of its own, read what the other warp wrote."""
    values = np.random.default_rng(4).permutation(128).astype(np.int32)
    kernel = SmallKernel(
        """
        #include "common/ptx/named_barrier.cuh"
        extern "C" __global__ void test(const int* values, int* sums)
        {
            __shared__ int shared[128];
            const int pair = threadIdx.x / 64;
            int mine = values[threadIdx.x];
            for (int round = 0; round < 3 + 4 * pair; ++round) {
                shared[threadIdx.x] = mine;
                named_barrier<64>(1 + pair);
                mine += shared[threadIdx.x ^ 32];
                named_barrier<64>(1 + pair);
            }
            sums[threadIdx.x] = mine;
        }
        """,
        cache,
        threads=128,
    )
    pairs = values.reshape(2, 2, 32)
    expected = [pairs[0].sum(0) * 4, pairs[1].sum(0) * 64]  # every round after the first doubles the sum
    got = kernel(values=values, sums=np.zeros(128, np.int32))["sums"].reshape(2, 2, 32)
    np.testing.assert_array_equal(got, np.repeat(np.stack(expected)[:, None], 2, axis=1))
