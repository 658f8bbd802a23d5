"""Rounding in place: what NumPy's conversion gives, for every kind of number."""

import ml_dtypes
import numpy as np
import pytest

from autotune.core.dtypes import numpy_dtype
from autotune.ops.rounding import round_to

HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
FINITE = HALVES[np.isfinite(HALVES)]


def around(values: np.ndarray) -> np.ndarray:
    """The values, the middles between neighbours, where ties are, and what lies right beside both."""
    ordered = np.unique(values)
    points = np.concatenate([ordered, (ordered[1:] + ordered[:-1]) / 2])
    return np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_all_numbers_of_fp16_their_middles_and_neighbours(name: str) -> None:
    values = around(FINITE)
    got = values.copy()
    round_to(got, name)
    np.testing.assert_array_equal(got, values.astype(numpy_dtype(name)).astype(np.float32))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 65519.996, 65520.0, -65520.0, 1e38])
def test_what_fp16_does_not_hold(odd: float) -> None:
    values = np.array([1.0 + 2.0**-11, odd, 3e-8, -1e-30], np.float32)
    got = values.copy()
    with np.errstate(over="ignore"):
        round_to(got, "fp16")
        expected = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_views_empty_arrays_and_float64() -> None:
    values = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    got = values.copy()
    round_to(got[:, ::2], "fp16")
    np.testing.assert_array_equal(got[:, ::2], values[:, ::2].astype(np.float16))
    np.testing.assert_array_equal(got[:, 1::2], values[:, 1::2])
    round_to(np.empty((0, 3), np.float32), "fp16")
    wide = np.array([1 / 3])
    round_to(wide, "bf16")
    assert wide[0] == float(np.float64(1 / 3).astype(ml_dtypes.bfloat16))
