"""Clusters: which block is which; on a GPU blocks wait for one another and reach one another's memory.

The emulator executes blocks one by one: it knows ranks, and says so where a kernel needs more.
"""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.errors import LaunchError
from tests.emulator.small_kernel import SmallKernel


def test_ranks_in_a_cluster(cache: BuildCache) -> None:
    """A grid of 4 by 4 by 2 in clusters of 2 by 2 by 1: x counts first."""
    kernel = SmallKernel(
        """
        #include "common/ptx/cluster.cuh"
        extern "C" __global__ void test(int* ranks, int* blocks)
        {
            const int number = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
            ranks[number] = cluster_rank();
            blocks[number] = cluster_blocks();
        }
        """,
        cache,
        blocks=(4, 4, 2),
        cluster=(2, 2, 1),
    )
    empty = np.full((2, 4, 4), -1, np.int32)
    got = kernel(ranks=empty, blocks=empty)
    z, y, x = np.mgrid[0:2, 0:4, 0:4]
    np.testing.assert_array_equal(got["ranks"], x % 2 + 2 * (y % 2) + 0 * z)
    np.testing.assert_array_equal(got["blocks"], 4)


def test_a_block_alone_is_a_cluster(cache: BuildCache) -> None:
    """It waits for itself and arrives at its own barrier, as a kernel does that is written for clusters of any size."""
    kernel = SmallKernel(
        """
        #include "common/ptx/cluster.cuh"
        #include "common/ptx/fences.cuh"
        #include "common/ptx/mbarrier.cuh"
        extern "C" __global__ void test(int* y)
        {
            extern __shared__ __align__(16) unsigned char smem[];
            const SharedAddress barrier = shared_address(smem);
            if (threadIdx.x == 0) {
                mbarrier_init(barrier, 32);
                fence_mbarrier_init();
            }
            cluster_sync();
            mbarrier_arrive_remote(barrier, cluster_rank());
            mbarrier_wait(barrier, 0);
            y[threadIdx.x] = cluster_blocks();
        }
        """,
        cache,
        smem=16,
    )
    np.testing.assert_array_equal(kernel(y=np.zeros(32, np.int32))["y"], 1)


EXCHANGE = """
#include "common/ptx/cluster.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
extern "C" __global__ void test(const int* x, int* y)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const SharedAddress barrier = shared_address(smem);
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 32);
        fence_mbarrier_init();
    }
    SYNC
    y[64 + blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    __threadfence();
    mbarrier_arrive_remote(barrier, cluster_rank() ^ 1);
    mbarrier_wait(barrier, 0);  // the other block has written
    y[blockIdx.x * 32 + threadIdx.x] = *(volatile int*)(y + 64 + (blockIdx.x ^ 1) * 32 + threadIdx.x);
    SYNC
}
"""


@pytest.mark.parametrize(
    ("sync", "refusal"), [("cluster_sync();", "waits for 1 others"), ("__syncthreads();", "reaches another")]
)
def test_two_blocks_wait_for_one_another(sync: str, refusal: str, cache: BuildCache) -> None:
    """The emulator says what it does not model. On a GPU each block reads what the other one wrote."""
    kernel = SmallKernel(EXCHANGE.replace("SYNC", sync), cache, smem=16, blocks=(2, 1, 1), cluster=(2, 1, 1))
    x = np.random.default_rng(1).integers(-99, 100, (2, 32)).astype(np.int32)
    y = np.zeros((4, 32), np.int32)
    if SmallKernel.emulated:
        with pytest.raises(LaunchError, match=f"executes a cluster's blocks one by one; the kernel {refusal}"):
            kernel(x=x, y=y)
    elif "cluster" in sync:
        np.testing.assert_array_equal(kernel(x=x, y=y)["y"], np.concatenate([x[::-1], x]))
