"""Sums of accumulators in device memory: what groups add, thread by thread or at once, is found by row and column."""

import re

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/accumulator_rows.cuh"
#include "common/attention/accumulator_sums.cuh"
using Sums = AccumulatorSums<ROWS, COLS, N, BY_ROWS>;
extern "C" __global__ void test(const float* in, float* sums, float* out)
{
    __shared__ __align__(128) unsigned char parts[2][4 * Sums::PART];
    const int group = threadIdx.x / 128, row = BY_ROWS ? 64 * group : 0, col = BY_ROWS ? 0 : N * group;
    float x[N / 2];
    for (int i = 0; i < N / 2; ++i)
        x[i] = in[(row + accumulator_row() + i / 2 % 2 * 8) * COLS + col + i / 4 * 8 + accumulator_col() + i % 2];
    float* const part = sums + group * Sums::PART;
    Sums::add(part, x);
    Sums::add_at_once(part, x, shared_address(parts[group]), group);
    Sums::add_at_once(part, x, shared_address(parts[group]), group);
    if (threadIdx.x % 128 == 0) bulk_wait<0>();
    __syncthreads();
    for (int i = threadIdx.x / 32; i < ROWS / 16 * (COLS / 8); i += 8) {
        const int first = i % (ROWS / 16) * 16, piece = i / (ROWS / 16) * 8;
        const float4 four = Sums::read(sums, first, piece);
        float* const to = out + (first + threadIdx.x % 32 / 4) * COLS + piece + threadIdx.x % 4 * 2;
        to[0] = four.x;
        to[1] = four.y;
        to[8 * COLS] = four.z;
        to[8 * COLS + 1] = four.w;
    }
}
"""


@pytest.mark.parametrize(("rows", "cols", "n"), [(128, 64, 64), (64, 128, 64), (64, 32, 16)])
def test_sums_are_found_by_row_and_column(rows: int, cols: int, n: int, cache: BuildCache) -> None:
    """Two groups, each adds its part to what is there."""
    text = KERNEL.replace("BY_ROWS", str(rows == 128).lower())
    for name, value in (("ROWS", rows), ("COLS", cols), ("N", n)):
        text = re.sub(rf"\b{name}\b", str(value), text)
    x = np.random.default_rng(rows).integers(-1000, 1000, (rows, cols)).astype(np.float32)
    kernel = SmallKernel(text, cache, threads=256)
    got = kernel(**{"in": x}, sums=np.full(rows * cols, 5, np.float32), out=np.zeros_like(x))
    np.testing.assert_array_equal(got["out"], 3 * x + 5)
