"""A reduction over a block, by halves."""

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/warp/reduce.cuh"
#include "common/warp/shared_reduce.cuh"
extern "C" __global__ void test(const float* in, float* sums, float* maxima)
{
    __shared__ float scratch[128];
    sums[threadIdx.x] = reduce_tree<Sum, 128>(in[threadIdx.x], scratch);
    maxima[threadIdx.x] = reduce_tree<Max, 128>(in[threadIdx.x], scratch);
}
"""


def whole(seed: int, n: int) -> NDArray[np.float32]:
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-1000, 1001, n).astype(np.float32)


def test_trees(cache: BuildCache) -> None:
    """The scratch is free after a reduction; infinity and its sign pass."""
    kernel = SmallKernel(KERNEL, cache, threads=128)
    x, empty = whole(1, 128), np.zeros(128, np.float32)
    got = kernel(**{"in": x}, sums=empty, maxima=empty)
    assert (got["sums"] == x.sum()).all()
    assert (got["maxima"] == x.max()).all()
    x[:] = -np.inf
    x[77] = -3
    got = kernel(**{"in": x}, sums=empty, maxima=empty)
    assert (got["sums"] == -np.inf).all()
    assert (got["maxima"] == -3).all()
