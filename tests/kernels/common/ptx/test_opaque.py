"""A value that the compiler is not to reason about is the value all the same."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_opaque_values_are_what_they_were(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/opaque.cuh"
        extern "C" __global__ void test(const int* x, int* y) { y[opaque_thread()] = opaque(x[opaque(threadIdx.x)]); }
        """,
        cache,
    )
    x = np.random.default_rng(1).integers(-(2**31), 2**31, 32).astype(np.int32)
    x[:2] = -(2**31), 2**31 - 1
    np.testing.assert_array_equal(kernel(x=x, y=np.zeros(32, np.int32))["y"], x)
