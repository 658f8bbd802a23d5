"""Products by fp32 FMAs: every element has its thread, and every thread its sums."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize(("threads", "rows"), [(128, 16), (64, 4), (32, 32), (256, 8)])
def test_a_grid_of_threads(threads: int, rows: int, cache: BuildCache) -> None:
    """Each place has one thread; where it can, a warp covers 4 rows by 8 columns."""
    kernel = SmallKernel(
        """
        #include "common/warp/fma_products.cuh"
        extern "C" __global__ void test(int* places, int* shape)
        {
            const ThreadGrid<THREADS, ROWS> grid;
            places[threadIdx.x] = grid.row * decltype(grid)::COLS + grid.col;
            shape[threadIdx.x] = decltype(grid)::WARP_ROWS * 100 + decltype(grid)::WARP_COLS;
        }
        """.replace("THREADS", str(threads)).replace("ROWS>", f"{rows}>"),
        cache,
        threads=threads,
    )
    empty = np.zeros(threads, np.int32)
    got = kernel(places=empty, shape=empty)
    np.testing.assert_array_equal(np.sort(got["places"]), np.arange(threads))
    warp_rows = min(rows, 4) if threads // rows >= 8 else 32 // (threads // rows)
    assert (got["shape"] == warp_rows * 100 + 32 // warp_rows).all()
    cols = threads // rows
    for warp in got["places"].reshape(-1, 32):
        row, col = warp // cols, warp % cols
        assert (np.ptp(row) + 1, np.ptp(col) + 1) == (warp_rows, 32 // warp_rows)


def test_lanes_over_a_tile(cache: BuildCache) -> None:
    """4 lanes across the columns, 8 down the rows; lanes 0 and 1 are two rows of one column."""
    kernel = SmallKernel(
        """
        #include "common/warp/fma_products.cuh"
        extern "C" __global__ void test(int* warp, int* m, int* n)
        {
            const Lanes<4> lanes;
            warp[threadIdx.x] = lanes.warp;
            m[threadIdx.x] = lanes.m;
            n[threadIdx.x] = lanes.n;
        }
        """,
        cache,
        threads=64,
    )
    empty = np.zeros((2, 32), np.int32)
    got = kernel(warp=empty, m=empty, n=empty)
    np.testing.assert_array_equal(got["warp"], np.repeat([[0], [1]], 32, axis=1))
    for m, n in zip(got["m"], got["n"], strict=True):
        assert sorted(zip(m.tolist(), n.tolist(), strict=True)) == [(i, j) for i in range(8) for j in range(4)]
        np.testing.assert_array_equal(n[::2], n[1::2])


def test_products_of_three_kinds(cache: BuildCache) -> None:
    """A thread's 4 by 4 elements of A B^T, A B and A^T B, of 16 by 16 in all, added to what was there."""
    kernel = SmallKernel(
        """
        #include "common/warp/fma_products.cuh"
        extern "C" __global__ void test(const float* a, const float* b, float* nt, float* nn, float* tn)
        {
            __shared__ __align__(16) float x[256], y[256];
            for (int i = threadIdx.x; i < 256; i += 32) x[i] = a[i], y[i] = b[i];
            __syncthreads();
            if (threadIdx.x >= 16) return;
            const int row = threadIdx.x / 4, col = threadIdx.x % 4;
            float sums[3][4][4];
            for (int i = 0; i < 48; ++i) (&sums[0][0][0])[i] = 0.5f;
            multiply_nt<4, 4, 16, 4 * 16, 4 * 16, 4, 2>(sums[0], x + row * 16, y + col * 16);
            multiply_nn<4, 4, 16, 4 * 16, 16, 8, 2, 4, 1>(sums[1], x + row * 16, y + 2 * col);
            multiply_tn<4, 4, 16, 16, 4, 16, 8, 2, 4>(sums[2], x + 4 * row, y + 2 * col);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) {
                    const int pair_col = 2 * col + j / 2 * 8 + j % 2;
                    nt[(row + 4 * i) * 16 + col + 4 * j] = sums[0][i][j];
                    nn[(row + 4 * i) * 16 + pair_col] = sums[1][i][j];
                    tn[(4 * row + i) * 16 + pair_col] = sums[2][i][j];
                }
        }
        """,
        cache,
    )
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 10, (16, 16)).astype(np.float32) for _ in range(2))
    empty = np.zeros((16, 16), np.float32)
    got = kernel(a=a, b=b, nt=empty, nn=empty, tn=empty)
    np.testing.assert_array_equal(got["nt"], a @ b.T + 0.5)
    np.testing.assert_array_equal(got["nn"], a @ b + 0.5)
    np.testing.assert_array_equal(got["tn"], a.T @ b + 0.5)
