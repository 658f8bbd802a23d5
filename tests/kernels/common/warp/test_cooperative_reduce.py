"""The reductions of cooperative groups, which join neighbouring lanes."""

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/warp/cooperative_reduce.cuh"
#include "common/warp/reduce.cuh"
extern "C" __global__ void test(const float* in, float* sums, float* maxima)
{
    (void)0;
    sums[threadIdx.x] = reduce_tile<Sum, 8>(in[threadIdx.x]);
    maxima[threadIdx.x] = reduce_tile<Max, 32>(in[threadIdx.x]);
}
"""


def whole(seed: int, n: int) -> NDArray[np.float32]:
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-1000, 1001, n).astype(np.float32)


def test_tiles_of_lanes(cache: BuildCache) -> None:
    x, empty = whole(2, 128), np.zeros(128, np.float32)
    x[40] = -np.inf
    got = SmallKernel(KERNEL, cache, threads=128)(**{"in": x}, sums=empty, maxima=empty)
    np.testing.assert_array_equal(got["sums"], np.repeat(x.reshape(-1, 8).sum(1), 8))
    np.testing.assert_array_equal(got["maxima"], np.repeat(x.reshape(-1, 32).max(1), 32))
