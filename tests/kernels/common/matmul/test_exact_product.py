"""Elements of a product computed again, from the summands that they have."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("triangle", ["A_LOWER", "A_UPPER", "NONE"])
def test_elements_that_are_not_finite_are_mended(triangle: str, cache: BuildCache) -> None:
    """A's other triangle is NaN, which is no summand; without a triangle nothing is looked at."""
    kernel = SmallKernel(
        """
        #include <cuda_fp16.h>
        #include "common/matmul/exact_product.cuh"
        extern "C" __global__ void test(__half* a, __half* b, __half* c)
        {
            const View<__half, 4> left = {a, {0, 0, 9, 1}}, right = {b, {0, 0, 10, 1}}, product = {c, {0, 0, 10, 1}};
            mend_product<Triangle::WHICH, 64>(left, right, product, 0, 0, 0, 2, 5, 1, 8, 7, 9, 0.5f);
        }
        """.replace("WHICH", triangle),
        cache,
        threads=64,
    )
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 10, shape).astype(np.float16) for shape in ((7, 9), (9, 10)))
    below = np.arange(9) <= np.arange(7)[:, None] + 2
    kept = {"A_LOWER": below, "A_UPPER": np.arange(9) >= np.arange(7)[:, None] + 2, "NONE": below | True}[triangle]
    c = np.full((7, 10), 3, np.float16)
    c[[2, 4, 6, 0, 3], [1, 7, 8, 3, 9]] = np.nan, np.inf, -np.inf, np.nan, np.nan
    got = kernel(a=np.where(kept, a, np.float16(np.nan)), b=b, c=c)["c"]
    want = c.copy()
    if triangle != "NONE":  # of rows 2 to 6, columns 1 to 8
        exact = 0.5 * np.where(kept, a, 0).astype(np.float64) @ b
        for at in ((2, 1), (4, 7), (6, 8)):
            want[at] = exact[at]
    np.testing.assert_array_equal(got, want)
