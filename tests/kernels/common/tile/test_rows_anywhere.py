"""Rows that begin at any element: where a matrix begins, tiles of another shift, and rows back by ordinary stores."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

STARTS = """
#include "common/tile/rows_anywhere.cuh"
extern "C" __global__ void test(__half* data, int* starts)
{
    if (threadIdx.x >= 6) return;
    const View<__half, 4> view = {data + OFFSET, {1LL << 30, 75, 600, 1}};
    const MatrixStart start = matrix_start(view, threadIdx.x / 3, threadIdx.x % 3);
    starts[3 * threadIdx.x] = start.shift;
    starts[3 * threadIdx.x + 1] = start.step;
    starts[3 * threadIdx.x + 2] = start.leap;
}
"""

SHIFT = """
#include "common/tile/rows_anywhere.cuh"
using Tile = SlabTile<16, 32>;
extern "C" __global__ void test(const __half* in, __half* shifted, __half* out)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const SharedAddress tile = shared_address(memory);
    __half* const lines = reinterpret_cast<__half*>(memory);
    for (int i = threadIdx.x; i < 512; i += 32) lines[Tile::offset(i / 32, i % 32) / 2] = in[i];
    __syncwarp();
    shift_rows<Tile, 32, SIZE>(tile, 0, FROM, TO);
    __syncwarp();
    for (int i = threadIdx.x; i < 512; i += 32) shifted[i] = lines[Tile::offset(i / 32, i % 32) / 2];
    __syncwarp();
    write_rows<Tile, SIZE>(tile, 0, TO, out + OFFSET, ROW, COL, 13);
}
"""

PAIRS = """
#include "common/tile/rows_anywhere.cuh"
extern "C" __global__ void test(const uint32_t* in, __half* out)
{
    uint32_t pairs[4];
    for (int i = 0; i < 4; ++i) pairs[i] = in[threadIdx.x / 4 * 16 + 4 * i + threadIdx.x % 4];
    write_pairs<SIZE>(pairs, out + OFFSET + threadIdx.x / 4 * ROW, COL, 0, threadIdx.x / 4 != 5);
}
"""


def named(text: str, **values: int) -> str:
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


@pytest.mark.parametrize("offset", [0, 5])
def test_where_matrices_begin(offset: int, cache: BuildCache) -> None:
    """Elements from the multiple of 16 bytes at or before the tensor on, in steps of 8 and leaps of 2^20 of them."""
    kernel = SmallKernel(named(STARTS, OFFSET=offset), cache)
    got = kernel(data=np.zeros(16, np.float16), starts=np.zeros(18, np.int32))["starts"].reshape(6, 3)
    for place, (shift, step, leap) in enumerate(got.tolist()):
        elements = offset + place // 3 * 2**30 + place % 3 * 75
        assert (shift, step, leap) == (elements % 8, elements // 8 % 2**20, elements // 2**23)


@pytest.mark.parametrize(("size", "before", "after"), [(19, 3, 3), (19, 0, 7), (19, 7, 0), (25, 5, 2), (8, 1, 6)])
@pytest.mark.parametrize(("offset", "gap", "col"), [(0, 5, 1), (3, 0, 1), (6, 1, 3)])
def test_rows_of_another_shift_and_back(
    size: int, before: int, after: int, offset: int, gap: int, col: int, cache: BuildCache
) -> None:
    """Zeros around them in the tile; of 16 rows 13 are written, and nothing between them."""
    row = size * col + gap
    tile = np.random.default_rng(size).standard_normal((16, 32)).astype(np.float16)
    out = np.full(offset + 16 * row, 7, np.float16)
    text = named(SHIFT, SIZE=size, FROM=before, TO=after, OFFSET=offset, ROW=row, COL=col)
    tile[:, before + size :] = 0
    found = SmallKernel(text, cache, smem=1024)(**{"in": tile}, shifted=np.zeros((16, 32), np.float16), out=out)
    own = tile[:, before : before + size]
    shifted = np.zeros((16, 32), np.float16)
    shifted[:, after : after + size] = own
    np.testing.assert_array_equal(found["shifted"].reshape(16, 32), shifted)
    expected = out.copy()
    for i in range(13):
        expected[offset + i * row : offset + i * row + size * col : col] = own[i]
    np.testing.assert_array_equal(found["out"], expected)


@pytest.mark.parametrize("size", [1, 19, 32])
@pytest.mark.parametrize(("offset", "gap", "col"), [(0, 2, 1), (3, 1, 1), (1, 0, 2)])
def test_pairs_to_rows(size: int, offset: int, gap: int, col: int, cache: BuildCache) -> None:
    """Eight rows, one of which does not exist; their first columns, at words or between two."""
    row = size * col + gap
    values = np.random.default_rng(size).standard_normal((8, 32)).astype(np.float16)
    out = np.full(offset + 8 * row + 2, 7, np.float16)
    text = named(PAIRS, SIZE=size, OFFSET=offset, ROW=row, COL=col)
    got = SmallKernel(text, cache)(**{"in": values.view(np.uint32)}, out=out)["out"]
    expected = out.copy()
    for i in range(8):
        if i != 5:
            expected[offset + i * row : offset + i * row + size * col : col] = values[i, :size]
    np.testing.assert_array_equal(got, expected)
