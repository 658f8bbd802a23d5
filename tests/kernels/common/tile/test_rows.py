"""Rows of (B, NH, T, HS) tensors: which of them threads have, and their elements."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_rows_of_threads(cache: BuildCache) -> None:
    """2 batches of 3 heads of 10 rows; blocks of 64 threads, 16 a row, begin anew with every head."""
    kernel = SmallKernel(
        """
        #include "common/tile/rows.cuh"
        extern "C" __global__ void test(int* seen)
        {
            const RowPlace place = row_of_thread<64, 16>(3, 10);
            if (place.t < 10) atomicAdd(seen + place.number(3, 10), 1);
        }
        """,
        cache,
        threads=64,
        blocks=(2 * 3 * 3, 1, 1),
    )
    np.testing.assert_array_equal(kernel(seen=np.zeros(60, np.int32))["seen"], 16)


@pytest.mark.parametrize("step", [1, 3])
def test_elements_of_rows(step: int, cache: BuildCache) -> None:
    """By vectors where neighbours lie side by side, else one by one; nothing in between is written."""
    kernel = SmallKernel(
        """
        #include "common/tile/rows.cuh"
        extern "C" __global__ void test(const __half* x, float* read, __half* y)
        {
            const View<const __half, 4> from = {x, {0, 0, 64 * STEP, STEP}};
            const View<__half, 4> to = {y, {0, 0, 64 * STEP, STEP}};
            const RowPlace place = {0, 0, static_cast<int>(threadIdx.x) / 8};
            const int col = threadIdx.x % 8 * 8;
            float part[8];
            load_row(row_of(from, place), STEP, col, part, STEP == 1);
            for (int e = 0; e < 8; ++e) read[place.t * 64 + col + e] = part[e];
            for (int e = 0; e < 8; ++e) part[e] += 0.125f;
            store_row(row_of(to, place), STEP, col, part, STEP == 1);
        }
        """.replace("STEP", str(step)),
        cache,
    )
    x = np.random.default_rng(1).integers(-100, 100, (4, 64, step)).astype(np.float16)
    got = kernel(x=x, read=np.zeros((4, 64), np.float32), y=np.full_like(x, np.nan))
    np.testing.assert_array_equal(got["read"], x[..., 0])
    np.testing.assert_array_equal(got["y"][..., 0], x[..., 0] + np.float16(0.125))
    assert np.isnan(got["y"][..., 1:]).all()
