"""Exponentials and maxima of one instruction."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

ULP = 2.0**-23


def test_exponentials_are_good_to_two_units(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/arithmetic.cuh"
        extern "C" __global__ void test(const float* x, float* y)
        {
            for (int i = threadIdx.x; i < 4096; i += 32) y[i] = exp2_fast(x[i]);
        }
        """,
        cache,
    )
    x = np.random.default_rng(2).uniform(-125, 127, 4096).astype(np.float32)
    x[:7] = [0, -np.inf, np.inf, np.nan, 1, -1, 127]
    got = kernel(x=x, y=np.zeros(4096, np.float32))["y"]
    np.testing.assert_array_equal(got[:4], [1, 0, np.inf, np.nan])
    exact = np.exp2(x[4:].astype(np.float64))
    assert (np.abs(got[4:] - exact) <= 2 * ULP * exact).all()


def test_maxima_that_pass_nan_on(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/arithmetic.cuh"
        extern "C" __global__ void test(const float* x, float* y) { y[threadIdx.x] = at_least(x[threadIdx.x], 2.0f); }
        """,
        cache,
    )
    x = np.linspace(-4, 8, 32).astype(np.float32)
    x[[0, 7, 31]] = np.nan, -np.inf, np.inf
    np.testing.assert_array_equal(kernel(x=x, y=np.zeros(32, np.float32))["y"], np.maximum(x, 2))
