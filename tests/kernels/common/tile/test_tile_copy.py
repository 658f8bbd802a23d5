"""Tiles of a matrix in shared memory: of 16-bit elements and of floats."""

import math

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize(
    ("cols", "used", "swizzled", "threads"),
    [
        (64, 64, True, 128), (96, 72, True, 64), (256, 200, False, 32), (32, 8, True, 128),
        (64, 36, True, 64), (160, 132, False, 32), (64, 50, True, 192), (32, 2, False, 32), (96, 75, True, 128),
        (32, 1, True, 32),
    ],
)  # fmt: skip
def test_tile_copier(cols: int, used: int, swizzled: bool, threads: int, cache: BuildCache) -> None:
    """Rows 5 to 53 of a matrix of 40 rows, `used` columns, by the accesses that its rows allow and by elements: zeros
    beyond, whatever is there. Rows begin at multiples of one such access, and of no wider one."""
    width = math.gcd(used, 8)
    kernel = SmallKernel(
        """
        #include "common/tile/tile_copy.cuh"
        using Tile = SharedTile<COLS, SWIZZLED, 2, USED>;
        extern "C" __global__ void test(const __half* matrix, const __half* strided, __half* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            const TileCopier<Tile, THREADS> copier;
            for (int way = 0; way < 2; ++way) {
                const __half* const data = way == 0 ? matrix : strided;
                const long long pitch = (way + 1) * (COLS + Tile::WIDTH);
                const View<__half, 4> view{const_cast<__half*>(data), {0, 0, pitch, way + 1}};
                const bool vectors = allows_vectors<Tile::WIDTH>(view);
                if (vectors != (way == 0) || Tile::WIDTH != ACCESS) __trap();
                copier.copy<48>(smem, copier.start(view, data, 5), view, 40 - 5, vectors);
                commit_copies();
                wait_for_copies<0>();
                __syncthreads();
                for (int i = threadIdx.x; i < 48 * COLS; i += THREADS)
                    seen[way * 48 * COLS + i] =
                        reinterpret_cast<__half*>(smem + Tile::offset(i / COLS, i % COLS / 8))[i % 8];
                __syncthreads();
            }
        }
        """.replace("COLS", str(cols))
        .replace("USED", str(used))
        .replace("ACCESS", str(width))
        .replace("SWIZZLED", str(swizzled).lower())
        .replace("THREADS", str(threads)),
        cache,
        threads=threads,
        smem=48 * (2 * cols + 16),
    )
    matrix = np.random.default_rng(3).standard_normal((64, cols + width)).astype(np.float16)
    matrix[40:] = matrix[:, used:] = np.nan
    strided = np.full((64, cols + width, 2), np.nan, np.float16)
    strided[..., 0] = matrix
    seen = kernel(matrix=matrix, strided=strided, seen=np.full((2, 48, cols), -1, np.float16))["seen"]
    expected = np.zeros((48, cols), np.float16)
    expected[:35, :used] = matrix[5:40, :used]
    np.testing.assert_array_equal(seen[0], expected)
    np.testing.assert_array_equal(seen[1], expected)


@pytest.mark.parametrize("used", [96, 90, 75])
def test_tile_copier_copies_floats(used: int, cache: BuildCache) -> None:
    """Rows 5 to 36 of a matrix of 30 rows, by accesses of 16, 8 and 4 bytes and by elements: zeros beyond."""
    kernel = SmallKernel(
        """
        #include "common/tile/shared_tile.cuh"
        #include "common/tile/tile_copy.cuh"
        using Tile = FloatTile<96, true, USED>;
        extern "C" __global__ void test(const float* matrix, const float* strided, float* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            const TileCopier<Tile, 64> copier;
            for (int way = 0; way < 2; ++way) {
                const float* const data = way == 0 ? matrix : strided;
                const View<float, 4> view{const_cast<float*>(data), {0, 0, (way + 1) * USED, way + 1}};
                copier.copy<32>(smem, copier.start(view, data, 5), view, 30 - 5, allows_vectors<Tile::WIDTH>(view));
                commit_copies();
                wait_for_copies<0>();
                __syncthreads();
                for (int i = threadIdx.x; i < 32 * 96; i += 64)
                    seen[way * 32 * 96 + i] =
                        reinterpret_cast<float*>(smem + Tile::offset(i / 96, i % 96 / 4))[i % 4];
                __syncthreads();
            }
        }
        """.replace("USED", str(used)),
        cache,
        threads=64,
        smem=32 * 96 * 4,
    )
    matrix = np.random.default_rng(11).standard_normal((40, used)).astype(np.float32)
    matrix[30:] = np.nan
    strided = np.full((40, used, 2), np.nan, np.float32)
    strided[..., 0] = matrix
    seen = kernel(matrix=matrix, strided=strided, seen=np.full((2, 32, 96), -1, np.float32))["seen"]
    expected = np.zeros((32, 96), np.float32)
    expected[:25, :used] = matrix[5:30]
    np.testing.assert_array_equal(seen, [expected, expected])
