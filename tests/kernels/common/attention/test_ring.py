"""A ring of stages: the producer waits for readers, readers for what is filled; all of it arrives in order."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_stages_are_filled_when_they_are_read(cache: BuildCache) -> None:
    """Ten lines of 128 bytes through three stages, read by two warps."""
    kernel = SmallKernel(
        """
        #include "common/attention/ring.cuh"
        #include "common/ptx/fences.cuh"
        #include "common/ptx/tensor_copy.cuh"
        extern "C" __global__ void test(const float* x, float* y)
        {
            extern __shared__ __align__(1024) unsigned char smem[];
            const RingBarriers<3> ring = {shared_address(smem) + 3 * 128};
            RingPlace<3> at;
            if (threadIdx.x == 0) {
                ring.init(2);
                fence_mbarrier_init();
            }
            __syncthreads();
            const int warp = threadIdx.x / 32;
            for (int line = 0; line < 10; ++line, at.advance()) {
                if (warp == 2) {
                    if (threadIdx.x % 32 == 0) {
                        ring.begin_fill(at, 128);
                        bulk_load(shared_address(smem) + 128 * at.stage, x + 32 * line, 128, ring.full(at));
                    }
                } else {
                    ring.wait_full(at);
                    const float mine = reinterpret_cast<const float*>(smem + 128 * at.stage)[threadIdx.x % 32];
                    ring.release(at);
                    y[(line * 2 + warp) * 32 + threadIdx.x % 32] = mine;
                }
            }
        }
        """,
        cache,
        threads=96,
        smem=3 * 128 + 48,
    )
    x = np.random.default_rng(1).standard_normal((10, 32)).astype(np.float32)
    got = kernel(x=x, y=np.zeros((10, 2, 32), np.float32))["y"]
    np.testing.assert_array_equal(got, np.repeat(x[:, None], 2, axis=1))
