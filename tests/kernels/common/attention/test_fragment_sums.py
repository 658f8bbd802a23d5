"""Fragments added up in device memory, and read again by the lanes that have them."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_sums_come_back_to_their_lanes(cache: BuildCache) -> None:
    """Two warps add to two pieces; each lane reads what lanes of its number have added."""
    kernel = SmallKernel(
        """
        #include "common/attention/fragment_sums.cuh"
        extern "C" __global__ void test(const float* x, float* sums, float* read)
        {
            const int lane = threadIdx.x % 32;
            for (int piece = 0; piece < 2; ++piece) {
                float mine[4];
                for (int e = 0; e < 4; ++e) mine[e] = (piece + 1) * x[4 * threadIdx.x + e];
                FragmentSums::add(sums + 128 * piece, mine);
            }
            __syncthreads();
            if (threadIdx.x >= 32) return;
            for (int piece = 0; piece < 2; ++piece) {
                float all[4];
                FragmentSums::read(all, sums + 128 * piece);
                for (int e = 0; e < 4; ++e) read[(piece * 32 + lane) * 4 + e] = all[e];
            }
        }
        """,
        cache,
        threads=64,
    )
    x = np.random.default_rng(1).integers(-99, 100, (2, 32, 4)).astype(np.float32)
    got = kernel(x=x, sums=np.zeros((2, 128), np.float32), read=np.zeros((2, 32, 4), np.float32))
    np.testing.assert_array_equal(got["read"], [x.sum(axis=0), 2 * x.sum(axis=0)])
    np.testing.assert_array_equal(np.sort(got["sums"][0]), np.sort(x.sum(axis=0), axis=None))  # nothing lies elsewhere
