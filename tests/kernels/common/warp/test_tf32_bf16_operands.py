"""Operands in two parts, the small ones in bf16: products of them are good to twelve units in the last place.

They are those of `common/warp/tf32_bf16_operands.cuh`.
"""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.kernels.common.tf32_fragments import (
    MIXED,
    check_accuracy,
    check_not_finite,
    check_size,
    check_small_parts,
)  # fmt: skip


def test_bf16_products_are_about_as_good_as_fp32(cache: BuildCache) -> None:
    check_accuracy(MIXED, 12, cache)


@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_bf16_products_of_any_size(size: float, cache: BuildCache) -> None:
    check_size(MIXED, size, cache)


def test_bf16_small_parts_meet_the_right_ones(cache: BuildCache) -> None:
    check_small_parts(MIXED, cache)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bf16_products_pass_nan_and_infinity_on(value: float, cache: BuildCache) -> None:
    check_not_finite(MIXED, value, cache)
