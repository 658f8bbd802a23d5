"""The bare product of tf32 operands, `common/ptx/mma_tf32.cuh`: what the hardware sees of them, and of their sums."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.kernels.common.tf32_fragments import (
    BARE,
    EPSILON,
    d_fragments,
    normal,
    products,
    truncated,
)


def test_the_bare_product_truncates_its_operands(cache: BuildCache) -> None:
    a, b, d = normal(1, 16, 8), normal(2, 8, 8), normal(3, 16, 8)
    got = products(cache, a, b, d, BARE)
    exact = d_fragments(d + truncated(a).astype(np.float64) @ truncated(b).astype(np.float64))
    assert np.abs(got - exact).max() <= 4 * EPSILON * np.abs(exact).max()
    untruncated = d_fragments(d + a.astype(np.float64) @ b.astype(np.float64))
    assert np.abs(got - untruncated).max() > 2.0**-12


def test_sums_are_truncated(cache: BuildCache) -> None:
    """What does not fit is cut off, so that a sum of 1 + 1.75 / 2**23 is no more than 1 + 1 / 2**23."""
    a, b = np.ones((16, 8), np.float32), np.full((8, 8), 0.25 * EPSILON, np.float32)
    b[0] = 1
    a[8:] = -1
    got = products(cache, a, b, np.zeros((16, 8), np.float32), BARE)
    sign = d_fragments(np.repeat([[1.0], [-1.0]], 8, axis=0) * np.ones(8))
    assert set(np.unique(got * sign)) <= {1.0, 1.0 + EPSILON}


def test_the_bare_product_is_exact_where_tf32_is(cache: BuildCache) -> None:
    rng = np.random.default_rng(4)
    a, b, d = (rng.integers(-1024, 1025, shape).astype(np.float32) for shape in ((16, 8), (8, 8), (16, 8)))
    exact = d.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(products(cache, a, b, d, BARE), d_fragments(exact))
