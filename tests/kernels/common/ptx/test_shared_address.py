"""Addresses in shared memory count bytes, from where the block's memory is aligned."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_addresses_count_bytes(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/shared_address.cuh"
        extern "C" __global__ void test(int* bytes, int* aligned)
        {
            extern __shared__ __align__(1024) unsigned char smem[];
            const float* const floats = reinterpret_cast<const float*>(smem);
            bytes[threadIdx.x] = static_cast<int>(shared_address(floats + threadIdx.x) - shared_address(smem));
            aligned[threadIdx.x] = shared_address(smem) % 1024 == 0;
        }
        """,
        cache,
        smem=128,
    )
    got = kernel(bytes=np.zeros(32, np.int32), aligned=np.zeros(32, np.int32))
    np.testing.assert_array_equal(got["bytes"], 4 * np.arange(32))
    assert got["aligned"].all()
