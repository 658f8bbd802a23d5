"""Rows that lanes name, in products."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_fragments_of_tiles_make_products(cache: BuildCache) -> None:
    """X Y^T and X Y for 16x16 pieces of tiles, read by ldmatrix in its two orders."""
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/ptx/mma.cuh"
        #include "common/tile/shared_tile.cuh"
        #include "common/warp/matrix_lanes.cuh"
        using Tile = SharedTile<64, true>;
        extern "C" __global__ void test(const __half* x, const __half* y, float* product)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            for (int tile = 0; tile < 2; ++tile)
                for (int i = threadIdx.x; i < 16 * 64; i += 32)
                    reinterpret_cast<__half*>(smem + tile * Tile::bytes(16) + Tile::offset(i / 64, i % 64 / 8))[i % 8] =
                        (tile == 0 ? x : y)[i];
            __syncthreads();
            const SharedAddress a_row = shared_address(smem) + ldmatrix_rows_first<Tile>();
            const SharedAddress y_tile = shared_address(smem + Tile::bytes(16));
            for (int step = 0; step < 4; ++step) {  // columns 16 * step to 16 * step + 15
                uint32_t a[4], b[2][4];
                ldmatrix(a, Tile::advance(a_row, 2 * step));
                ldmatrix(b[0], Tile::advance(y_tile + ldmatrix_cols_first<Tile>(), 2 * step));
                ldmatrix_transposed(b[1], Tile::advance(y_tile + ldmatrix_rows_first<Tile>(), 2 * step));
                for (int way = 0; way < 2; ++way)
                    for (int half = 0; half < 2; ++half) {
                        float d[4] = {};
                        mma_16x8x16<__half>(d, a, b[way][2 * half], b[way][2 * half + 1]);
                        for (int i = 0; i < 4; ++i) {
                            const int row = threadIdx.x / 4 + i / 2 * 8;
                            const int col = 8 * half + threadIdx.x % 4 * 2 + i % 2;
                            product[((step * 2 + way) * 16 + row) * 16 + col] = d[i];
                        }
                    }
            }
        }
        """,
        cache,
        smem=2 * 16 * 128,
    )
    rng = np.random.default_rng(4)
    x, y = (rng.integers(-8, 9, (16, 64)).astype(np.float16) for _ in range(2))
    got = kernel(x=x, y=y, product=np.zeros((4, 2, 16, 16), np.float32))["product"]
    for step in range(4):
        a, b = (matrix[:, 16 * step : 16 * step + 16].astype(np.float64) for matrix in (x, y))
        np.testing.assert_array_equal(got[step, 0], a @ b.T)
        np.testing.assert_array_equal(got[step, 1], a @ b)
