"""Parts of a gradient that a warp group adds up and writes, rows keys or columns of the head, against NumPy."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/gradient_part.cuh"
using Pairs = SlabTile<128, 64>;   // queries by keys
using Factor = SlabTile<128, 128>; // queries by columns of the head
using Tile = SlabTile<64, 128>;    // keys by columns of the head
using Part = GradientPart<__half, Pairs, Factor, HEAD, BLOCKS, WIDTH>;
extern __shared__ __align__(1024) unsigned char smem[];
template <class T>
__device__ void place(int tile, const __half* from, int cols)
{
    for (int i = threadIdx.x; i < T::ROWS * cols; i += 128)
        *reinterpret_cast<__half*>(smem + tile + T::offset(i / cols, i % cols / 8 * 8) + i % 8 * 2) = from[i];
}
extern "C" __global__ void __launch_bounds__(128) test(const __half* p, const __half* x, __half* out)
{
    const SharedAddress pairs = shared_address(smem), factor = pairs + Pairs::BYTES, tile = factor + Factor::BYTES;
    place<Pairs>(0, p, 64);
    place<Factor>(Pairs::BYTES, x, 128);
    for (int i = threadIdx.x; i < Tile::BYTES / 2; i += 128)
        reinterpret_cast<__half*>(smem + Pairs::BYTES + Factor::BYTES)[i] = __float2half_rn(7.0f);
    fence_async_shared();
    __syncthreads();
    const Part part = {FIRST_R, FIRST_C};
    Part::Sums sums;
    Part::clear(sums);
    for (int twice = 0; twice < 2; ++twice) {
        wgmma_fence(sums);
        part.add(sums, pairs, factor);
        wgmma_commit();
        wgmma_wait<0>(sums);
    }
    part.place<Tile>(sums, 0.5f, tile);
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * 128; i += 128)
        out[i] = *reinterpret_cast<const __half*>(smem + Pairs::BYTES + Factor::BYTES +
                                                  Tile::offset(i / 128, i % 128 / 8 * 8) + i % 8 * 2);
}
"""


@pytest.mark.parametrize(
    ("head", "row", "col", "blocks", "width"),
    [(False, 0, 64, 1, 64), (False, 0, 0, 1, 128), (True, 64, 0, 1, 64), (True, 0, 32, 2, 32)],
)
@pytest.mark.parametrize("hot", [None, (5, 3)])
def test_a_part(
    head: bool, row: int, col: int, blocks: int, width: int, hot: tuple[int, int] | None, cache: BuildCache
) -> None:
    """Twice the product, half of it; an infinity marks sixteen keys where a warp has its first column of them."""
    random = np.random.default_rng(row + col)
    p, x = (random.integers(-2, 3, shape).astype(np.float16) for shape in ((128, 64), (128, 128)))
    if hot is not None:
        p[hot] = np.inf  # the 4th key's weights of the 6th query
    values = {"HEAD": str(head).lower(), "FIRST_R": row, "FIRST_C": col, "BLOCKS": blocks, "WIDTH": width}
    text = KERNEL
    for name, value in values.items():
        text = text.replace(name, str(value))
    smem = 128 * 64 * 2 + 128 * 128 * 2 + 64 * 128 * 2
    got = SmallKernel(text, cache, threads=128, smem=smem)(p=p, x=x, out=np.zeros((64, 128), np.float16))["out"]
    with np.errstate(invalid="ignore"):
        right = p.astype(np.float64).T @ x.astype(np.float64)
    keys = slice(col, col + width) if head else slice(row, row + 64 * blocks)
    columns = slice(row, row + 64 * blocks) if head else slice(col, col + width)
    expected = np.full((64, 128), 7.0)
    expected[keys, columns] = right[keys, columns]
    if hot is not None and keys.start == 0:
        firsts = range(columns.start, columns.stop, 16) if head else (columns.start,)
        expected[0, list(firsts)] = np.nan
    np.testing.assert_array_equal(got.astype(np.float64), expected)
