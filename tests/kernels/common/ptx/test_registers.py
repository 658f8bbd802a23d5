"""Registers that warp groups hand to one another: no value changes, in the group that gives and in those that take."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_values_stay(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/registers.cuh"
        extern "C" __global__ void __launch_bounds__(384, 1) test(const int* x, int* y)
        {
            const int mine = x[threadIdx.x];
            if (threadIdx.x < 128) {
                release_registers<40>();
                y[threadIdx.x] = mine + 1;
            } else {
                take_registers<232>();
                y[threadIdx.x] = mine * 3;
            }
        }
        """,
        cache,
        threads=384,
    )
    x = np.arange(384, dtype=np.int32)
    np.testing.assert_array_equal(kernel(x=x, y=np.zeros_like(x))["y"], np.where(x < 128, x + 1, 3 * x))
