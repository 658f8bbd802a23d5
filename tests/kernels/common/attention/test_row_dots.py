"""Sums of products of rows, by lanes that share a row out."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("step", [1, 2])
def test_dots_of_rows(step: int, cache: BuildCache) -> None:
    """4 lanes a row of 96; rows that do not exist are not read, and their sum is 0."""
    kernel = SmallKernel(
        """
        #include "common/attention/row_dots.cuh"
        extern "C" __global__ void test(const __half* x, const __half* y, float* dots)
        {
            const View<const __half, 4> a = {x, {0, 0, 96 * STEP, STEP}}, b = {y, {0, 0, 96 * STEP, STEP}};
            const RowPlace place = {0, 0, static_cast<int>(threadIdx.x) / 4};
            dots[threadIdx.x] = dot_of_rows<96, 8, 4>(a, b, place, place.t < 6);
        }
        """.replace("STEP", str(step)),
        cache,
    )
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-8, 9, (6, 96, step)).astype(np.float16) for _ in range(2))
    got = kernel(x=x, y=y, dots=np.zeros((8, 4), np.float32))["dots"]
    want = np.zeros(8)
    want[:6] = (x[..., 0].astype(np.float64) * y[..., 0]).sum(axis=1)
    np.testing.assert_array_equal(got, np.repeat(want[:, None], 4, axis=1))
