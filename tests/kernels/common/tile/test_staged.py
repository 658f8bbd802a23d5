"""Tiles as floats in shared memory, in one go and in two: zeros beyond the last row, whatever lies there."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize(("cols", "step"), [(64, 1), (96, 1), (64, 2)])  # 96: threads do not stay in their columns
def test_tiles_of_floats_arrive(cols: int, step: int, cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/tile/staged.cuh"
        constexpr int STRIDE = COLS + 4;
        extern "C" __global__ void test(const __half* x, float* at_once, float* in_flight)
        {
            __shared__ __align__(16) float tile[12 * STRIDE];
            for (int i = threadIdx.x; i < 12 * STRIDE; i += 64) tile[i] = -1.0f;
            __syncthreads();
            stage<12, COLS, STRIDE, 8, 64>(tile, x, COLS * STEP, STEP, 9, STEP == 1);
            __syncthreads();
            for (int i = threadIdx.x; i < 12 * STRIDE; i += 64) at_once[i] = tile[i], tile[i] = -1.0f;
            __syncthreads();
            TileInFlight<12, COLS, STRIDE, 8, 64, __half> flight;
            flight.fetch(x, COLS * STEP, 9, STEP == 1);
            flight.place(tile, COLS * STEP, STEP, STEP == 1);
            __syncthreads();
            for (int i = threadIdx.x; i < 12 * STRIDE; i += 64) in_flight[i] = tile[i];
        }
        """.replace("COLS", str(cols)).replace("STEP", str(step)),
        cache,
        threads=64,
    )
    x = np.random.default_rng(1).standard_normal((12, cols, step)).astype(np.float16)
    x[9:] = np.nan
    x[..., 1:] = np.nan
    empty = np.zeros((12, cols + 4), np.float32)
    got = kernel(x=x, at_once=empty, in_flight=empty)
    expected = np.full((12, cols + 4), -1, np.float32)  # what rows are longer by stays
    expected[:, :cols] = 0
    expected[:9, :cols] = x[:9, :, 0]
    np.testing.assert_array_equal(got["at_once"], expected)
    np.testing.assert_array_equal(got["in_flight"], expected)
