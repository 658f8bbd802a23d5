"""Waiting for the kernel before and letting the next one begin: without such kernels, nothing happens."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_a_kernel_alone_goes_on(cache: BuildCache) -> None:
    """tests/trace/test_overlap_faults.py has what the emulator finds where kernels overlap."""
    kernel = SmallKernel(
        """
        #include "common/ptx/dependent_launch.cuh"
        extern "C" __global__ void test(const int* x, int* y)
        {
            let_next_kernel_begin();
            wait_for_previous_kernel();
            y[threadIdx.x] = x[threadIdx.x] + 1;
        }
        """,
        cache,
    )
    x = np.arange(32, dtype=np.int32)
    np.testing.assert_array_equal(kernel(x=x, y=np.zeros_like(x))["y"], x + 1)
