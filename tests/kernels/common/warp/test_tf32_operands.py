"""Operands in two tf32 parts: what they are, and products of them."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.tf32_fragments import (
    EPSILON,
    THREE,
    check_accuracy,
    check_not_finite,
    check_size,
    check_small_parts,
    numbers,
    rounded,
    truncated,
)  # fmt: skip


@pytest.mark.parametrize("nearest", [True, False])
def test_splitting(nearest: bool, cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/warp/tf32_operands.cuh"
        extern "C" __global__ void test(const float* x, unsigned* big, unsigned* small)
        {
            for (int i = threadIdx.x; i < 4096; i += 32) {
                Tf32Split<1, ROUNDED> split;
                split.set(0, x[i]);
                big[i] = split.big[0];
                small[i] = split.small[0];
            }
        }
        """.replace("ROUNDED", str(nearest).lower()),
        cache,
    )
    x = numbers()
    got = kernel(x=x, big=np.zeros(4096, np.int32), small=np.zeros(4096, np.int32))
    big, small = got["big"].view(np.float32), got["small"].view(np.float32)
    np.testing.assert_array_equal(truncated(big), rounded(x) if nearest else truncated(x))
    np.testing.assert_array_equal(small, x - truncated(big))
    residue = (x.astype(np.float64) - truncated(big) - truncated(small)) / np.abs(x)
    assert np.abs(residue).max() <= (1 if nearest else 3) * EPSILON
    assert np.abs(residue).max() > 0.5 * EPSILON
    assert nearest == bool(((residue * np.sign(x)) < 0).any())


def test_tf32_products_are_about_as_good_as_fp32(cache: BuildCache) -> None:
    check_accuracy(THREE, 4, cache)


@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_tf32_products_of_any_size(size: float, cache: BuildCache) -> None:
    check_size(THREE, size, cache)


def test_tf32_small_parts_meet_the_right_ones(cache: BuildCache) -> None:
    check_small_parts(THREE, cache)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_tf32_products_pass_nan_and_infinity_on(value: float, cache: BuildCache) -> None:
    check_not_finite(THREE, value, cache)
