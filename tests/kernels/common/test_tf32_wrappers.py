"""The emulated twins of tf32 tensor core products, and the tiles of floats they read, each alone against NumPy."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

LANE = np.arange(32)
G, T = LANE // 4, LANE % 4  # a lane's group and its place there, as the PTX manual numbers fragments
EPSILON = 2.0**-23


def bits(x: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.ascontiguousarray(x).view(np.int32)


def truncated(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the hardware sees of a register."""
    return (bits(x) & np.int32(-0x2000)).view(np.float32)


def rounded(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """To 10 bits of mantissa, ties away from zero, computed without bits."""
    with np.errstate(divide="ignore"):
        step = np.exp2(np.floor(np.log2(np.abs(x.astype(np.float64)))) - 10)
    nearest: NDArray[np.float64] = np.sign(x) * np.floor(np.abs(x) / step + 0.5) * step
    return nearest.astype(np.float32)


def a_fragments(a: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lane by register of a 16x8 A operand."""
    return np.stack([a[G + i % 2 * 8, T + i // 2 * 4] for i in range(4)], axis=1)


def b_fragments(b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lane by register of an 8x8 B operand."""
    return np.stack([b[T + i * 4, G] for i in range(2)], axis=1)


def d_fragments(d: NDArray[Any]) -> NDArray[Any]:
    """Lane by register of a 16x8 accumulator."""
    return np.stack([d[G + i // 2 * 8, 2 * T + i % 2] for i in range(4)], axis=1)


def products(cache: BuildCache, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any], call: str) -> NDArray[Any]:
    """`call` on a warp's fragments `a`, `b`, `d` (lane by register)."""
    kernel = SmallKernel(
        """
        #include "common/warp/tf32_bf16_operands.cuh"
        extern "C" __global__ void test(const float* x, const float* y, float* z)
        {
            float d[1][1][4];
            uint32_t a[4], b[2];
            for (int i = 0; i < 4; ++i) a[i] = __float_as_uint(x[4 * threadIdx.x + i]);
            for (int i = 0; i < 2; ++i) b[i] = __float_as_uint(y[2 * threadIdx.x + i]);
            for (int i = 0; i < 4; ++i) d[0][0][i] = z[4 * threadIdx.x + i];
            Tf32A split_a[1];
            Tf32B split_b[1];
            split_a[0].set(a);
            split_b[0].set(b);
            MixedA mixed_a[1];
            MixedB mixed_b[1];
            mixed_a[0].set(a);
            mixed_b[0].set(b);
            CALL;
            for (int i = 0; i < 4; ++i) z[4 * threadIdx.x + i] = d[0][0][i];
        }
        """.replace("CALL", call),
        cache,
    )
    return kernel(x=a_fragments(a), y=b_fragments(b), z=d_fragments(d))["z"]


BARE = "mma_16x8x8_tf32(d[0][0], a, b)"
THREE = "multiply_tf32x3(d, 0, split_a, split_b)"
MIXED = "multiply_tf32x3(d, 0, mixed_a, mixed_b)"


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_bare_product_truncates_its_operands(cache: BuildCache) -> None:
    a, b, d = normal(1, 16, 8), normal(2, 8, 8), normal(3, 16, 8)
    got = products(cache, a, b, d, BARE)
    exact = d_fragments(d + truncated(a).astype(np.float64) @ truncated(b).astype(np.float64))
    assert np.abs(got - exact).max() <= 4 * EPSILON * np.abs(exact).max()
    untruncated = d_fragments(d + a.astype(np.float64) @ b.astype(np.float64))
    assert np.abs(got - untruncated).max() > 2.0**-12


def test_sums_are_truncated(cache: BuildCache) -> None:
    """What does not fit is cut off, so that a sum of 1 + 1.75 / 2**23 is no more than 1 + 1 / 2**23."""
    a, b = np.ones((16, 8), np.float32), np.full((8, 8), 0.25 * EPSILON, np.float32)
    b[0] = 1
    a[8:] = -1
    got = products(cache, a, b, np.zeros((16, 8), np.float32), BARE)
    sign = d_fragments(np.repeat([[1.0], [-1.0]], 8, axis=0) * np.ones(8))
    assert set(np.unique(got * sign)) <= {1.0, 1.0 + EPSILON}


def test_the_bare_product_is_exact_where_tf32_is(cache: BuildCache) -> None:
    rng = np.random.default_rng(4)
    a, b, d = (rng.integers(-1024, 1025, shape).astype(np.float32) for shape in ((16, 8), (8, 8), (16, 8)))
    exact = d.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(products(cache, a, b, d, BARE), d_fragments(exact))


@pytest.mark.parametrize(("call", "roundings"), [(THREE, 4), (MIXED, 12)], ids=["tf32", "bf16"])
def test_three_products_are_about_as_good_as_fp32(call: str, roundings: int, cache: BuildCache) -> None:
    a, b, d = normal(5, 16, 8), normal(6, 8, 8), np.zeros((16, 8), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(products(cache, a, b, d, call) - d_fragments(exact)).max()
    scale = (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))).max()
    assert error <= roundings * EPSILON * scale
    one = np.abs(products(cache, a, b, d, BARE) - d_fragments(exact)).max()
    assert one > 100 * error


@pytest.mark.parametrize("call", [THREE, MIXED], ids=["tf32", "bf16"])
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_products_of_any_size(size: float, call: str, cache: BuildCache) -> None:
    """Small parts neither underflow nor overflow."""
    a, b, d = normal(7, 16, 8) * np.float32(size), normal(8, 8, 8) * np.float32(size), np.zeros((16, 8), np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(
        products(cache, a, b, d, call), d_fragments(exact), rtol=0, atol=3e-6 * np.abs(exact).max()
    )


@pytest.mark.parametrize("call", [THREE, MIXED], ids=["tf32", "bf16"])
def test_small_parts_meet_the_right_ones(call: str, cache: BuildCache) -> None:
    """1 + 2**-12 times 1, and 1 times that, at each depth alone: the small part counts, whichever factor has it."""
    small = np.float32(1 + 2.0**-12)
    a, b = np.zeros((16, 8), np.float32), np.zeros((8, 8), np.float32)
    for row in range(16):
        a[row, row % 8] = small if row < 8 else 1
    b[:] = np.where(np.arange(8)[:, None] % 2 == 1, small, 1)
    got = products(cache, a, b, np.zeros((16, 8), np.float32), call)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, d_fragments(exact), rtol=0, atol=2.0**-20)


@pytest.mark.parametrize("call", [THREE, MIXED], ids=["tf32", "bf16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_three_products_pass_nan_and_infinity_on(value: float, call: str, cache: BuildCache) -> None:
    a, b, d = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32), np.zeros((16, 8), np.float32)
    a[3, 2], b[5, 6] = value, value
    got = products(cache, a, b, d, call)
    finite = np.full((16, 8), True)
    finite[3], finite[:, 6] = False, False
    np.testing.assert_array_equal(np.isfinite(got), d_fragments(finite))
    assert (got[d_fragments(finite)] == 8).all()


def numbers() -> NDArray[np.float32]:
    """Normal numbers of many sizes, ties, neighbours of powers of two, the smallest and nearly the largest."""
    x = normal(7, 4096) * np.exp2(np.random.default_rng(8).integers(-60, 60, 4096)).astype(np.float32)
    x[:6] = [1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 - EPSILON, 2 - EPSILON, 2.0**-126, 3e38]
    return x


@pytest.mark.parametrize("nearest", [True, False])
def test_splitting(nearest: bool, cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/warp/tf32_operands.cuh"
        extern "C" __global__ void test(const float* x, unsigned* big, unsigned* small)
        {
            for (int i = threadIdx.x; i < 4096; i += 32) {
                Tf32Split<1, ROUNDED> split;
                split.set(0, x[i]);
                big[i] = split.big[0];
                small[i] = split.small[0];
            }
        }
        """.replace("ROUNDED", str(nearest).lower()),
        cache,
    )
    x = numbers()
    got = kernel(x=x, big=np.zeros(4096, np.int32), small=np.zeros(4096, np.int32))
    big, small = got["big"].view(np.float32), got["small"].view(np.float32)
    np.testing.assert_array_equal(truncated(big), rounded(x) if nearest else truncated(x))
    np.testing.assert_array_equal(small, x - truncated(big))
    residue = (x.astype(np.float64) - truncated(big) - truncated(small)) / np.abs(x)
    assert np.abs(residue).max() <= (1 if nearest else 3) * EPSILON
    assert np.abs(residue).max() > 0.5 * EPSILON
    assert nearest == bool(((residue * np.sign(x)) < 0).any())


@pytest.mark.parametrize("swizzled", [True, False])
def test_tiles_of_floats_make_products(swizzled: bool, cache: BuildCache) -> None:
    """X Y^T by ldmatrix, then (X Y^T) Y with D as the A operand."""
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/tile/shared_tile.cuh"
        #include "common/warp/deep_floats.cuh"
        #include "common/warp/matrix_lanes.cuh"
        using Tile = FloatTile<64, SWIZZLED>;
        extern "C" __global__ void test(const float* x, const float* y, float* scores, float* product, float* again)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            unsigned char* const y_tile = smem + Tile::bytes(16);
            for (int i = threadIdx.x; i < 16 * 64; i += 32) {
                const int at = Tile::offset(i / 64, i % 64 / 4) + i % 4 * 4;
                *reinterpret_cast<float*>(smem + at) = x[i];
                *reinterpret_cast<float*>(y_tile + at) = y[i];
            }
            __syncthreads();
            const SharedAddress x_row = shared_address(smem) + ldmatrix_rows_first<Tile>();
            const SharedAddress y_row = shared_address(y_tile) + ldmatrix_cols_first<Tile>();
            float s[1][2][4] = {};
            for (int step = 0; step < 8; ++step) {
                uint32_t both[4];
                Tf32A a[1];
                Tf32B b[2];
                ldmatrix(both, Tile::advance(x_row, 2 * step));
                a[0].set(both);
                ldmatrix(both, Tile::advance(y_row, 2 * step));
                for (int i = 0; i < 4; ++i) b[i / 2].set(i % 2, __uint_as_float(both[i]));
                multiply_tf32x3(s, 0, a, b);
            }
            const DeepFloats<Tile> deep;
            const DeepRows<Tile> vectors;
            const int g = threadIdx.x / 4, t = threadIdx.x % 4;
            for (int col = 0; col < 64; col += 8) {
                float d[1][1][4] = {};
                for (int n = 0; n < 2; ++n) {
                    Tf32A a[1];
                    Tf32B b[1];
                    for (int i = 0; i < 4; ++i) a[0].set(i, s[0][n][i % 2 * 2 + i / 2]);
                    deep.read(b[0], y_tile + Tile::bytes(8 * n), col / 8);
                    multiply_tf32x3(d, 0, a, b);
                }
                for (int i = 0; i < 4; ++i) product[(g + i / 2 * 8) * 64 + col + 2 * t + i % 2] = d[0][0][i];
            }
            for (int group = 0; group < 2; ++group) {
                float d[1][4][4] = {};
                for (int n = 0; n < 2; ++n) {
                    Tf32A a[1];
                    Tf32B b[4];
                    for (int i = 0; i < 4; ++i) a[0].set(i, s[0][n][i % 2 * 2 + i / 2]);
                    vectors.read(b, y_tile + Tile::bytes(8 * n), group);
                    multiply_tf32x3(d, 0, a, b);
                }
                for (int j = 0; j < 4; ++j)
                    for (int i = 0; i < 4; ++i)
                        again[(g + i / 2 * 8) * 64 + 32 * group + 8 * t + i % 2 * 4 + j] = d[0][j][i];
            }
            for (int n = 0; n < 2; ++n)
                for (int i = 0; i < 4; ++i) scores[(g + i / 2 * 8) * 16 + 8 * n + 2 * t + i % 2] = s[0][n][i];
        }
        """.replace("SWIZZLED", str(swizzled).lower()),
        cache,
        smem=2 * 16 * (256 + 16),
    )
    x, y = (np.random.default_rng(seed).integers(-9, 10, (16, 64)).astype(np.float32) for seed in (9, 10))
    product = np.zeros((16, 64), np.float32)
    got = kernel(x=x, y=y, scores=np.zeros((16, 16), np.float32), product=product, again=product)
    np.testing.assert_array_equal(got["scores"], x @ y.T)
    np.testing.assert_array_equal(got["product"], x @ y.T @ y)
    np.testing.assert_array_equal(got["again"], got["product"])


@pytest.mark.parametrize("swizzled", [True, False])
@pytest.mark.parametrize("HS", [32, 64, 96, 128])
def test_reads_meet_no_bank_conflict(HS: int, swizzled: bool, cache: BuildCache) -> None:
    """A read of single floats by a warp, and one of chunks by each group of eight lanes, is from all 32 banks."""
    kernel = SmallKernel(
        """
        #include "common/tile/shared_tile.cuh"
        #include "common/warp/deep_floats.cuh"
        #include "common/warp/matrix_lanes.cuh"
        using Tile = FloatTile<COLS, SWIZZLED>;
        extern "C" __global__ void test(int* floats, int* chunks)
        {
            const DeepFloats<Tile> deep;
            const DeepRows<Tile> vectors;
            floats[threadIdx.x] = deep.even;
            floats[32 + threadIdx.x] = deep.odd();
            chunks[threadIdx.x] = ldmatrix_rows_first<Tile>();
            chunks[32 + threadIdx.x] = ldmatrix_cols_first<Tile>();
            chunks[64 + threadIdx.x] = vectors.even;
            chunks[96 + threadIdx.x] = vectors.odd;
        }
        """.replace("COLS", str(HS)).replace("SWIZZLED", str(swizzled).lower()),
        cache,
    )
    got = kernel(floats=np.zeros((2, 32), np.int32), chunks=np.zeros((16, 8), np.int32))
    np.testing.assert_array_equal(np.sort(got["floats"] // 4 % 32, axis=1), np.tile(np.arange(32), (2, 1)))
    np.testing.assert_array_equal(np.sort(got["chunks"] // 16 % 8, axis=1), np.tile(np.arange(8), (16, 1)))


def test_tile_copier_copies_floats(cache: BuildCache) -> None:
    """Rows 5 to 36 of a matrix of 30 rows, by chunks and by elements: zeros beyond, whatever lies there."""
    kernel = SmallKernel(
        """
        #include "common/tile/shared_tile.cuh"
        #include "common/tile/tile_copy.cuh"
        using Tile = FloatTile<96, true>;
        extern "C" __global__ void test(const float* matrix, const float* strided, float* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            const TileCopier<Tile, 64> copier;
            for (int way = 0; way < 2; ++way) {
                const float* const data = way == 0 ? matrix : strided;
                const View<float, 4> view{const_cast<float*>(data), {0, 0, (way + 1) * 96, way + 1}};
                copier.copy<32>(smem, copier.start(view, data, 5), view, 30 - 5, allows_vectors<4>(view));
                commit_copies();
                wait_for_copies<0>();
                __syncthreads();
                for (int i = threadIdx.x; i < 32 * 96; i += 64)
                    seen[way * 32 * 96 + i] =
                        reinterpret_cast<float*>(smem + Tile::offset(i / 96, i % 96 / 4))[i % 4];
                __syncthreads();
            }
        }
        """,
        cache,
        threads=64,
        smem=32 * 96 * 4,
    )
    matrix = normal(11, 40, 96)
    matrix[30:] = np.nan
    strided = np.full((40, 96, 2), np.nan, np.float32)
    strided[..., 0] = matrix
    seen = kernel(matrix=matrix, strided=strided, seen=np.full((2, 32, 96), -1, np.float32))["seen"]
    expected = np.concatenate([matrix[5:30], np.zeros((7, 96), np.float32)])
    np.testing.assert_array_equal(seen, [expected, expected])
