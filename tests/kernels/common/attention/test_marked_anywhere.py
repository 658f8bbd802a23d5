"""Gradients to rows that begin at any element, marked where they are to be computed again."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/accumulator_rows.cuh"
#include "common/attention/marked_anywhere.cuh"
using Tile = SlabTile<64, 32>;
extern "C" __global__ void __launch_bounds__(128) test(const float* in, __half* out)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    float x[16];
    for (int i = 0; i < 16; ++i)
        x[i] = in[(accumulator_row() + i / 2 % 2 * 8) * 32 + i / 4 * 8 + accumulator_col() + i % 2];
    const View<__half, 4> to = {out + 3, {0, 0, 35, STRIDE}};
    store_marked<Tile, 27>(x, 0.5f, to, {0, 0, 2}, 52, shared_address(memory), 0);
}
"""


@pytest.mark.parametrize("stride", [1, 2])
def test_rows_and_marks(stride: int, cache: BuildCache) -> None:
    """27 columns of 50 rows of 64, and NaN where one of a warp's sixteen is not finite; nothing between them."""
    x = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    x[20, 3], x[50, 31] = np.nan, -np.inf
    row = 35 * stride
    out = np.full(3 + 66 * row, 7, np.float16)
    kernel = SmallKernel(KERNEL.replace("35", str(row)).replace("STRIDE", str(stride)), cache, threads=128, smem=4096)
    got = kernel(**{"in": x}, out=out)["out"]
    scaled = (x * np.float32(0.5)).astype(np.float16)
    scaled[16, 0] = scaled[48, 0] = np.nan
    expected = out.copy()
    for i in range(50):
        first = 3 + (2 + i) * row
        expected[first : first + 27 * stride : stride] = scaled[i, :27]
    np.testing.assert_array_equal(got, expected)
