"""Reductions over lanes, warps and blocks."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/warp/reduce.cuh"
extern "C" __global__ void test(const float* in, float* lanes, float* warps, float* blocks)
{
    __shared__ float scratch[4];
    const int at = threadIdx.x;
    lanes[at] = reduce_lanes<Sum, 1, 4>(in[at]);
    lanes[128 + at] = reduce_lanes<Max, 4, 32>(in[at]);
    warps[at] = reduce_warp<Sum>(in[at]);
    warps[128 + at] = reduce_warp<Max>(in[at]);
    blocks[at] = reduce_block<Sum, 128>(in[at], scratch);
    blocks[128 + at] = reduce_block<Max, 128>(in[at], scratch);
}
"""


def test_reductions(cache: BuildCache) -> None:
    x = np.random.default_rng(1).integers(-1000, 1001, 128).astype(np.float32)  # whole: exact in any order
    empty = np.zeros((2, 128), np.float32)
    got = SmallKernel(KERNEL, cache, threads=128)(**{"in": x}, lanes=empty, warps=empty, blocks=empty)
    np.testing.assert_array_equal(got["lanes"][0], np.repeat(x.reshape(-1, 4).sum(1), 4))
    strided = x.reshape(4, 8, 4).max(axis=1, keepdims=True)  # lanes that agree in their two lowest bits
    np.testing.assert_array_equal(got["lanes"][1], np.broadcast_to(strided, (4, 8, 4)).reshape(-1))
    np.testing.assert_array_equal(got["warps"][0], np.repeat(x.reshape(-1, 32).sum(1), 32))
    np.testing.assert_array_equal(got["warps"][1], np.repeat(x.reshape(-1, 32).max(1), 32))
    np.testing.assert_array_equal(got["blocks"], np.repeat([[x.sum()], [x.max()]], 128, axis=1))


def test_reductions_pass_infinity_on(cache: BuildCache) -> None:
    x, empty = np.full(128, -np.inf, np.float32), np.zeros((2, 128), np.float32)
    x[77] = -3
    got = SmallKernel(KERNEL, cache, threads=128)(**{"in": x}, lanes=empty, warps=empty, blocks=empty)
    assert (got["blocks"] == np.array([[-np.inf], [-3]])).all()
    assert (got["warps"][1].reshape(4, 32) == np.array([-np.inf, -np.inf, -3, -np.inf])[:, None]).all()
