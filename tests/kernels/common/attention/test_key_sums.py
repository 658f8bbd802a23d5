"""The end of dK's and dV's sums: scaled, rounded, in their places."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/accumulator_sums.cuh"
#include "common/attention/key_sums.cuh"
using Sums = AccumulatorSums<64, 48, 48, true>;
extern "C" __global__ void test(const float* sums, __half* dk, int* finite)
{
    View<__half, 4> gradient = {dk, {60 * 40, 60 * 40, 40, 1}};
    for (int row = 0; row < 64; row += 16) {
        const bool all = round_key_sums<Sums, 48, 40>(sums, 0.5f, gradient, 60, {0, 0, row});
        if (threadIdx.x == 0) finite[row / 16] = all;
    }
}
"""


def test_rows_of_dk(cache: BuildCache) -> None:
    """48 columns of sums, 40 of the tensor; which sixteen rows are not finite is told to all lanes."""
    dk = np.random.default_rng(1).standard_normal((64, 48)).astype(np.float32)
    dk[60:], dk[:, 40:] = 0.0, 0.0
    dk[17, 3], dk[47, 39] = np.inf, np.nan
    row, col = (index.ravel() for index in np.indices((64, 48)))
    place = col // 8 * 512 + row // 16 * 128 + row % 8 * 16 + col % 8 // 2 * 4 + row % 16 // 8 * 2 + col % 2
    sums = np.zeros(64 * 48, np.float32)
    sums[place] = dk.ravel()
    got = SmallKernel(KERNEL, cache)(sums=sums, dk=np.zeros((60, 40), np.float16), finite=np.zeros(4, np.int32))
    np.testing.assert_array_equal(got["dk"], (dk[:60, :40] * 0.5).astype(np.float16))
    assert got["finite"].tolist() == [1, 0, 0, 1]
