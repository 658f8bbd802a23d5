"""Tiles of operands on their way in, and of results on their way out: at edges, without vectors, cut by a triangle."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

STREAM = """
#include "common/matmul/matrix_tiles.cuh"
using Tile = SharedTile<TILE_COLS, true>;
extern "C" __global__ void test(const __half* x, float* seen)
{
    extern __shared__ __align__(128) unsigned char smem[];
    // 16 rows (or columns) by 32 summands a tile, of 20 by 70, whose lines lie 80 elements apart.
    constexpr int LINE = 80 * STEP;
    using Stream = OperandStream<__half, Tile, 16, 32, ALONG_K, 64>;
    Stream stream(x, ALONG_K ? LINE : STEP, ALONG_K ? STEP : LINE, STEP == 1);
    for (int part = 0; part < 2; ++part) {
        for (int k = 0; k < 3; ++k) {
            stream.fetch(smem, 20 - 16 * part, 70 - 32 * k);
            commit_copies();
            wait_for_copies<0>();
            __syncthreads();
            for (int i = threadIdx.x; i < 512; i += 64)
                seen[(part * 3 + k) * 512 + i] = to_float(reinterpret_cast<const __half*>(
                    smem + Tile::offset(i / TILE_COLS, i % TILE_COLS / 8))[i % 8]);
            __syncthreads();
        }
        stream.rewind(1);
    }
}
"""


@pytest.mark.parametrize(("along_k", "step"), [(True, 1), (False, 1), (True, 2)])
def test_operands_tile_by_tile(along_k: bool, step: int, cache: BuildCache) -> None:
    """What does not exist is 0, whatever lies there."""
    cols = 32 if along_k else 16
    text = STREAM.replace("ALONG_K", str(along_k).lower()).replace("STEP", str(step)).replace("TILE_COLS", str(cols))
    kernel = SmallKernel(text, cache, threads=64, smem=1024)
    x = np.full((70 + 32 if not along_k else 40, 80, step), np.nan, np.float16)
    part = np.random.default_rng(1).integers(-99, 100, (20, 70)).astype(np.float16)
    x[: 20 if along_k else 70, : 70 if along_k else 20, 0] = part if along_k else part.T
    seen = kernel(x=x, seen=np.zeros((2, 3, 512), np.float32))["seen"]
    padded = np.zeros((32, 96))
    padded[:20, :70] = part
    for i, k in np.ndindex(2, 3):
        tile = padded[16 * i : 16 * i + 16, 32 * k : 32 * k + 32]
        np.testing.assert_array_equal(seen[i, k], (tile if along_k else tile.T).reshape(-1), err_msg=str((i, k)))


WRITER = """
#include "common/matmul/matrix_tiles.cuh"
using Writer = ResultWriter<CTYPE, 1, 4, Triangle::C_LOWER, Access::CACHED, SHARED, true>;
extern "C" __global__ void test(const float* x, CTYPE* c)
{
    __shared__ __align__(128) unsigned char smem[16 * 32 * 4];
    const View<CTYPE, 4> view = {c, {0, 0, 96 * STEP, STEP}};
    const Writer writer(view, 0, 0, 40, 90, 2.0f);
    for (int row = 0; row < 48; row += 16)
        for (int col = 0; col < 96; col += 32) {
            float acc[1][4][4];
            for (int n = 0; n < 4; ++n)
                for (int e = 0; e < 4; ++e)
                    acc[0][n][e] =
                        x[(row + e / 2 * 8 + threadIdx.x / 4) * 96 + col + 8 * n + threadIdx.x % 4 * 2 + e % 2];
            if (col > row + 15 + 50)
                writer.write_zeros(row, col);
            else
                writer.write(acc, row, col, smem);
        }
}
"""


@pytest.mark.parametrize(
    ("ctype", "shared", "step"), [("__half", True, 1), ("float", True, 1), ("float", False, 1), ("__half", False, 2)]
)
def test_results_where_they_exist(ctype: str, shared: bool, step: int, cache: BuildCache) -> None:
    """40 by 90 of a larger array, twice what was summed, 0 right of the diagonal; nothing else is written."""
    text = WRITER.replace("CTYPE", ctype).replace("SHARED", str(shared).lower()).replace("STEP", str(step))
    x = np.random.default_rng(1).integers(-99, 100, (48, 96)).astype(np.float32)
    c = np.full((48, 96, step), -7, np.float16 if ctype == "__half" else np.float32)
    got = SmallKernel(text, cache)(x=x, c=c)["c"]
    want = c.copy()
    row, col = np.mgrid[0:40, 0:90]
    want[:40, :90, 0] = np.where(col <= row + 50, 2 * x[:40, :90], 0)
    np.testing.assert_array_equal(got, want)
