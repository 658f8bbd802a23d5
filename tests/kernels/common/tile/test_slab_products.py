"""Products by wgmma of tiles of slabs, against NumPy."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/ptx/fences.cuh"
#include "common/tile/slab_products.cuh"
using Rows = SlabTile<64, COLS>;   // A
using Tile = SlabTile<48, COLS>;   // B
using Pairs = SlabTile<64, 48>;    // P, as it lies in shared memory
using Square = SlabTile<64, 64>;   // and wider: its columns are rows of a product
extern __shared__ __align__(1024) unsigned char smem[];
template <class T>
__device__ void place(int tile, const __half* from, int cols)
{
    for (int i = threadIdx.x; i < T::ROWS * cols; i += 128) {
        const int at = tile + T::offset(i / cols, i % cols / 8 * 8) + i % 8 * 2;
        *reinterpret_cast<__half*>(smem + at) = from[i];
    }
}
extern "C" __global__ void __launch_bounds__(128)
test(const __half* a, const __half* b, const __half* p, float* over_columns, float* over_rows, float* from_registers,
     float* anew, float* of_columns)
{
    const SharedAddress rows = shared_address(smem), tile = rows + Rows::BYTES, pairs = tile + Tile::BYTES;
    const SharedAddress square = pairs;
    place<Rows>(0, a, COLS);
    place<Tile>(Rows::BYTES, b, COLS);
    place<Pairs>(Rows::BYTES + Tile::BYTES, p, 48);
    fence_async_shared();
    __syncthreads();
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    float x[24], y[COLS / 2], z[COLS / 2], u[8], w[8];
    for (int i = 0; i < COLS / 2; ++i) z[i] = 1.0f;
    for (int i = 0; i < 8; ++i) w[i] = 1.0f;
    uint32_t registers[3][4];
    for (int i = 0; i < 12; ++i) {
        const __half* const two = p + (row + i % 2 * 8) * 48 + i / 4 * 16 + i % 4 / 2 * 8 + col;
        registers[i / 4][i % 4] = *reinterpret_cast<const uint32_t*>(two);
    }
    wgmma_fence(x, y, z, u, w, registers);
    multiply_over_columns<__half, Rows, Tile>(x, Rows::rows_by_k(rows), tile);
    multiply_over_rows<__half, Pairs, Tile>(y, pairs, tile);
    add_product_over_rows<__half, Tile>(z, registers, tile);
    multiply_registers_over_rows<__half, Tile>(u, registers, tile + Tile::from_column(16));
    add_product_of_columns<__half, Square, Rows>(w, square, rows + Rows::from_column(COLS - 16));
    wgmma_commit();
    wgmma_wait<0>(x, y, z, u, w, registers);
    for (int i = 0; i < 8; ++i) {
        const int at = (row + i / 2 % 2 * 8) * 16 + i / 4 * 8 + col + i % 2;
        anew[at] = u[i];
        of_columns[at] = w[i];
    }
    for (int i = 0; i < 24; ++i) over_columns[(row + i / 2 % 2 * 8) * 48 + i / 4 * 8 + col + i % 2] = x[i];
    for (int i = 0; i < COLS / 2; ++i) {
        const int at = (row + i / 2 % 2 * 8) * COLS + i / 4 * 8 + col + i % 2;
        over_rows[at] = y[i];
        from_registers[at] = z[i];
    }
}
"""


@pytest.mark.parametrize("cols", [32, 96])
def test_products(cols: int, cache: BuildCache) -> None:
    """Whole numbers, whose sums are exact; one slab, and two of which the second is half full."""
    random = np.random.default_rng(cols)
    a, b, p = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((64, cols), (48, cols), (64, 48)))
    slabs = -(-cols // 64)
    smem = 128 * (64 * slabs + 48 * slabs + 64)
    outputs = (
        {"over_columns": np.zeros((64, 48), np.float32)}
        | {name: np.zeros((64, cols), np.float32) for name in ("over_rows", "from_registers")}
        | {name: np.zeros((64, 16), np.float32) for name in ("anew", "of_columns")}
    )
    got = SmallKernel(KERNEL.replace("COLS", str(cols)), cache, threads=128, smem=smem)(a=a, b=b, p=p, **outputs)
    x, y, z = (array.astype(np.float64) for array in (a, b, p))
    np.testing.assert_array_equal(got["over_columns"], x @ y.T)
    np.testing.assert_array_equal(got["over_rows"], z @ y)
    np.testing.assert_array_equal(got["from_registers"], z @ y + 1)
    np.testing.assert_array_equal(got["anew"], (z @ y)[:, 16:32])
    np.testing.assert_array_equal(got["of_columns"][:48], (z.T @ x)[:, -16:] + 1)
