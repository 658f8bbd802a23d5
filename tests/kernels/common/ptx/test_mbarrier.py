"""mbarriers: arrivals, phases, parities; named barriers that some only arrive at; registers handed over."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

RING = """
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/registers.cuh"
constexpr int STAGES = 2;
extern "C" __global__ void __launch_bounds__(256, 1) test(const int* count, const int* from, int* to, int* tried)
{
    __shared__ __align__(8) uint64_t barriers[2 * STAGES + 1];
    __shared__ int values[STAGES][128];
    const SharedAddress full = shared_address(barriers), empty = full + 8 * STAGES, never = empty + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + 8 * stage, 128);
            mbarrier_init(empty + 8 * stage, 4);
        }
        mbarrier_init(never, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    const int thread = threadIdx.x % 128;
    if (threadIdx.x < 128) {
        release_registers<80>();
        for (int i = 0; i < count[0]; ++i) {
            mbarrier_wait(empty + 8 * (i % STAGES), i / STAGES % 2 ^ 1);
            values[i % STAGES][thread] = from[128 * i + thread];
            mbarrier_arrive(full + 8 * (i % STAGES));
        }
    } else {
        take_registers<120>();
        for (int i = 0; i < count[0]; ++i) {
            mbarrier_wait(full + 8 * (i % STAGES), i / STAGES % 2);
            to[128 * i + thread] = values[i % STAGES][127 - thread];
            __syncwarp();
            if (thread % 32 == 0) mbarrier_arrive(empty + 8 * (i % STAGES));
        }
    }
    if (threadIdx.x == 0) {
        tried[0] = mbarrier_try_wait(never, 0);
        tried[1] = mbarrier_try_wait(never, 1);
        mbarrier_arrive(never);
        tried[2] = mbarrier_try_wait(never, 0);
        tried[3] = mbarrier_try_wait(never, 1);
    }
}
"""


def test_a_ring_of_stages(cache: BuildCache) -> None:
    """What producers write before they arrive is what consumers read; nobody runs ahead by more than the stages."""
    count = 7
    values = np.arange(count * 128, dtype=np.int32)
    results = SmallKernel(RING, cache, threads=256)(
        count=np.array([count], np.int32), **{"from": values}, to=np.zeros_like(values), tried=np.zeros(4, np.int32)
    )
    np.testing.assert_array_equal(results["to"].reshape(count, 128), values.reshape(count, 128)[:, ::-1])
    assert results["tried"].tolist() == [0, 1, 1, 0]  # a new barrier's phase 0 is under way; then phase 1 is


NAMED = """
#include "common/ptx/named_barrier.cuh"
extern "C" __global__ void test(int* order)
{
    __shared__ int shared[64];
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        shared[lane] = 10 + lane;
        named_barrier_arrive<64>(3);
        named_barrier<64>(4);
        order[lane] = shared[32 + lane];
    } else {
        named_barrier<64>(3);
        shared[32 + lane] = 2 * shared[31 - lane];
        named_barrier_arrive<64>(4);
    }
}
"""


def test_arriving_without_waiting(cache: BuildCache) -> None:
    order = SmallKernel(NAMED, cache, threads=64)(order=np.zeros(32, np.int32))["order"]
    assert order.tolist() == [2 * (41 - lane) for lane in range(32)]
