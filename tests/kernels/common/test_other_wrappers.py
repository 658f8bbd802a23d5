"""Wrappers of single instructions over the corners of their inputs: comparisons with NaN, sums of vectors, clusters."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

SMALLEST = np.finfo(np.float32).smallest_subnormal
LARGEST = np.finfo(np.float32).max
CORNERS = np.array([0.0, -0.0, 1.0, -1.0, SMALLEST, -SMALLEST, LARGEST, -LARGEST, np.inf, -np.inf, np.nan], np.float32)


def test_at_least(cache: BuildCache) -> None:
    """NaN stays, whatever the bound; of a pair of numbers the larger one."""
    pairs = np.stack(np.meshgrid(CORNERS, CORNERS[:-1])).reshape(2, -1)  # bounds are numbers
    x, bound = (np.resize(values, 128).astype(np.float32) for values in pairs)
    kernel = SmallKernel(
        """
        #include "common/ptx/arithmetic.cuh"
        #include "common/ptx/opaque.cuh"
        extern "C" __global__ void test(const float* x, const float* bound, float* y)
        {
            const int at = opaque(threadIdx.x);
            y[at] = at_least(x[at], bound[at]);
        }
        """,
        cache,
        threads=128,
    )
    got = kernel(x=x, bound=bound, y=np.zeros(128, np.float32))["y"]
    np.testing.assert_array_equal(got, np.where(np.isnan(x), x, np.maximum(x, bound)))


def test_add_vector(cache: BuildCache) -> None:
    """Four warps add to the same places; whole numbers, whose sums are exact in any order, and what is not finite."""
    start = np.random.default_rng(1).integers(-1000, 1001, 32 * 6).astype(np.float32)
    start[[0, 1, 128, 129]] = np.array([np.inf, np.nan, -np.inf, LARGEST], np.float32)
    kernel = SmallKernel(
        """
        #include "common/ptx/vector_add.cuh"
        extern "C" __global__ void test(float* sums)
        {
            const int lane = threadIdx.x % 32;
            const float x = static_cast<float>(threadIdx.x);
            add_vector(sums + 4 * lane, {x, x + 1.0f, x + 2.0f, x + 3.0f});
            add_vector(sums + 128 + 2 * lane, {-x, 1.0f});
        }
        """,
        cache,
        threads=128,
    )
    x = np.arange(128, dtype=np.float32).reshape(4, 32).sum(axis=0)
    added = [x[:, None] + 4 * np.arange(4, dtype=np.float32), np.stack([-x, np.full(32, 4.0, np.float32)], axis=1)]
    expected = start + np.concatenate([part.reshape(-1) for part in added])
    np.testing.assert_array_equal(kernel(sums=start)["sums"], expected.astype(np.float32))


def test_a_block_of_its_own_is_a_cluster(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/cluster.cuh"
        #include "common/ptx/fences.cuh"
        #include "common/ptx/mbarrier.cuh"
        extern "C" __global__ void test(int* seen)
        {
            __shared__ __align__(8) unsigned char barrier[8];
            __shared__ int written[128];
            if (threadIdx.x == 0) {
                mbarrier_init(shared_address(barrier), 128);
                fence_mbarrier_init();
            }
            cluster_sync();
            written[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
            mbarrier_arrive_remote(shared_address(barrier), cluster_rank());
            mbarrier_wait(shared_address(barrier), 0);
            seen[threadIdx.x] = written[127 - threadIdx.x] + 1000 * cluster_rank();
            cluster_sync();
        }
        """,
        cache,
        threads=128,
    )
    np.testing.assert_array_equal(kernel(seen=np.zeros(128, np.int32))["seen"], np.arange(128, 0, -1))
