"""Rows that begin anywhere, copied to rows of whole 16 bytes."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/tile/packed_rows.cuh"
extern "C" __global__ void test(const __half* in, __half* packed, int* next)
{
    const View<const __half, 4> from = {in + OFFSET, {BATCH, HEAD, ROW, COL}};
    next[blockIdx.x] = pack_block<4, 32, SIZE>(View<__half, 4>{const_cast<__half*>(from.data), {BATCH, HEAD, ROW, COL}},
                                               packed, static_cast<int>(blockIdx.x) - 1, 2, 3, 6);
}
"""


@pytest.mark.parametrize("size", [1, 7, 8, 19])
@pytest.mark.parametrize(("offset", "between", "stride"), [(0, 0, 1), (3, 1, 1), (1, 5, 2)])
def test_every_row_with_zeros_behind_it(size: int, offset: int, between: int, stride: int, cache: BuildCache) -> None:
    """(2, 3, 6, size) in blocks of 4 rows: 12, beside one before the first and one past the last."""
    row = size * stride + between
    strides = (18 * row, 6 * row, row, stride)
    values = np.arange(1, 2 * 18 * row + offset + 1, dtype=np.float32).astype(np.float16)
    names = ("BATCH", "HEAD", "ROW", "COL")
    text = KERNEL.replace("OFFSET", str(offset)).replace("SIZE", str(size))
    for name, elements in zip(names, strides, strict=True):
        text = text.replace(name, str(elements))
    width = -(-size // 8) * 8
    found = SmallKernel(text, cache, blocks=(14, 1, 1))(
        **{"in": values}, packed=np.full((2, 3, 6, width), 9, np.float16), next=np.zeros(14, np.int32)
    )
    expected = np.zeros((2, 3, 6, width), np.float16)
    seen = np.lib.stride_tricks.as_strided(values[offset:], (2, 3, 6, size), tuple(2 * s for s in strides))
    expected[..., :size] = seen
    np.testing.assert_array_equal(found["packed"].reshape(expected.shape), expected)
    np.testing.assert_array_equal(found["next"], np.arange(14) - 13)
