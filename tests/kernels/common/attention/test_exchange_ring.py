"""Places in a ring, and stages that warps fill for one another."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

PLACES = """
#include "common/attention/exchange_ring.cuh"
extern "C" __global__ void test(int* places, int* before)
{
    RingPlace<STAGES> at;
    for (int i = 0; i < 12; ++i) {
        places[2 * i] = at.stage;
        places[2 * i + 1] = at.parity;
        at.advance();
        before[2 * i] = place_before(at).stage;
        before[2 * i + 1] = place_before(at).parity;
    }
}
"""

HANDED_ON = """
#include "common/attention/exchange_ring.cuh"
#include "common/ptx/fences.cuh"
extern "C" __global__ void test(int* seen)
{
    __shared__ __align__(8) unsigned char memory[ExchangeBarriers<2>::BYTES];
    __shared__ int stages[2][64];
    const ExchangeBarriers<2> ring = {{shared_address(memory)}};
    if (threadIdx.x == 0) {
        ring.init(2, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    RingPlace<2> at;
    for (int i = 0; i < 9; ++i, at.advance()) {
        if (threadIdx.x < 64) {
            ring.wait_empty(at);
            stages[at.stage][threadIdx.x] = 100 * i + threadIdx.x;
            ring.filled(at);
        } else {
            ring.wait_full(at);
            for (int n = threadIdx.x % 32; n < 64; n += 32) seen[64 * i + n] = stages[at.stage][n];
            ring.release(at);
        }
    }
}
"""


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_place_before(stages: int, cache: BuildCache) -> None:
    kernel = SmallKernel(PLACES.replace("STAGES", str(stages)), cache, threads=1)
    got = kernel(places=np.zeros((12, 2), np.int32), before=np.zeros((12, 2), np.int32))
    expected = [(i % stages, i // stages % 2) for i in range(12)]
    np.testing.assert_array_equal(got["places"], expected)
    np.testing.assert_array_equal(got["before"], expected)


def test_two_warps_fill_what_a_third_reads(cache: BuildCache) -> None:
    got = SmallKernel(HANDED_ON, cache, threads=96)(seen=np.zeros((9, 64), np.int32))["seen"]
    np.testing.assert_array_equal(got, 100 * np.arange(9)[:, None] + np.arange(64))
