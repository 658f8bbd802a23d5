"""What fences order: ordinary writes before a copy that reads them, initialised mbarriers before their use."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_copies_read_what_was_written_before_the_fence(cache: BuildCache) -> None:
    """All lanes write a line, over what a copy has brought; one lane's copy takes it out."""
    kernel = SmallKernel(
        """
        #include "common/ptx/fences.cuh"
        #include "common/ptx/mbarrier.cuh"
        #include "common/ptx/tensor_copy.cuh"
        extern "C" __global__ void test(const float* x, float* y)
        {
            extern __shared__ __align__(1024) unsigned char memory[];
            const SharedAddress line = shared_address(memory), barrier = line + 128;
            if (threadIdx.x == 0) {
                mbarrier_init(barrier, 1);
                fence_mbarrier_init();
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                mbarrier_arrive_expect(barrier, 128);
                bulk_load(line, x, 128, barrier);
            }
            mbarrier_wait(barrier, 0);
            float& mine = reinterpret_cast<float*>(memory)[threadIdx.x];
            mine = 2.0f * mine + 1.0f;
            fence_async_shared();
            __syncthreads();
            if (threadIdx.x == 0) {
                bulk_store(y, line, 128);
                bulk_commit();
                bulk_wait<0>();
            }
        }
        """,
        cache,
        smem=256,
    )
    x = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(kernel(x=x, y=np.zeros_like(x))["y"], 2 * x + 1)
