"""The emulated twins of tensor core instructions, and the tiles they read, each alone against NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import epsilon
from tests.emulator.small_kernel import SmallKernel

CTYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16)}
NAMES = {"__half": "fp16", "__nv_bfloat16": "bf16"}
each_ctype = pytest.mark.parametrize("ctype", CTYPES)

# Elements of a fragment's register by lane, as the PTX manual gives them: g = lane / 4, p = 2 * (lane % 4).
LANE = np.arange(32)
G, P = LANE // 4, LANE % 4 * 2


def pairs(matrix: NDArray[Any], rows: NDArray[Any], cols: NDArray[Any]) -> NDArray[np.int32]:
    """Registers that hold (row, col) in the low half and (row, col + 1) in the high one."""
    both = np.stack([matrix[rows, cols], matrix[rows, cols + 1]], axis=-1)
    return np.ascontiguousarray(both).view(np.int32)[..., 0]


def a_fragments(a: NDArray[Any]) -> NDArray[np.int32]:
    """Lane by register of a 16x16 A operand."""
    return np.stack([pairs(a, G + i % 2 * 8, P + i // 2 * 8) for i in range(4)], axis=1)


def b_fragments(b: NDArray[Any]) -> NDArray[np.int32]:
    """Lane by register of a 16x8 B operand."""
    return np.stack([pairs(b.T, G, P + i * 8) for i in range(2)], axis=1)


def d_fragments(d: NDArray[Any]) -> NDArray[Any]:
    """Lane by register of a 16x8 accumulator."""
    return np.stack([d[G + i // 2 * 8, P + i % 2] for i in range(4)], axis=1)


MMA = """
#include "common/ptx/mma.cuh"
extern "C" __global__ void test(const unsigned* a, const unsigned* b, float* d)
{
    const int at = threadIdx.x;
    const uint32_t a_registers[4] = {a[4 * at], a[4 * at + 1], a[4 * at + 2], a[4 * at + 3]};
    float d_registers[4];
    for (int i = 0; i < 4; ++i) d_registers[i] = d[4 * at + i];
    mma_16x8x16<CTYPE>(d_registers, a_registers, b[2 * at], b[2 * at + 1]);
    for (int i = 0; i < 4; ++i) d[4 * at + i] = d_registers[i];
}
"""


def multiply(ctype: str, cache: BuildCache, rng: np.random.Generator, scale: float) -> tuple[NDArray[Any], ...]:
    """Two warps' products by the twin, and what they are in float64."""
    a = (rng.standard_normal((2, 16, 16)) * scale).round(3).astype(CTYPES[ctype])
    b = (rng.standard_normal((2, 16, 8)) * scale).round(3).astype(CTYPES[ctype])
    c = (rng.standard_normal((2, 16, 8)) * scale).astype(np.float32)
    kernel = SmallKernel(MMA.replace("CTYPE", ctype), cache, threads=64)
    fragments = {"a": np.stack(list(map(a_fragments, a))), "b": np.stack(list(map(b_fragments, b)))}
    got = kernel(**fragments, d=np.stack(list(map(d_fragments, c))))["d"]
    exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    return got, np.stack(list(map(d_fragments, exact)))


@each_ctype
def test_mma_multiplies(ctype: str, cache: BuildCache) -> None:
    got, exact = multiply(ctype, cache, np.random.default_rng(1), 1.0)
    np.testing.assert_allclose(got, exact, rtol=0, atol=17 * 2.0**-24 * np.abs(exact).max() * 4)


@each_ctype
def test_mma_is_exact_where_fp32_is(ctype: str, cache: BuildCache) -> None:
    """Products of halves overflow their own type and keep all their bits in fp32."""
    a, b = np.full((16, 16), 256, CTYPES[ctype]), np.full((16, 8), 255, CTYPES[ctype])
    a[3], b[:, 5] = -1, 2.0**-7
    d = np.full((16, 8), 0.5, np.float32)
    kernel = SmallKernel(MMA.replace("CTYPE", ctype), cache, threads=64)
    fragments = {"a": np.stack([a_fragments(a)] * 2), "b": np.stack([b_fragments(b)] * 2)}
    got = kernel(**fragments, d=np.stack([d_fragments(d)] * 2))["d"]
    exact = d.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(got[0], d_fragments(exact))
    np.testing.assert_array_equal(got[1], got[0])


@each_ctype
def test_mma_passes_nan_and_infinity_on(ctype: str, cache: BuildCache) -> None:
    a, b = np.ones((16, 16), CTYPES[ctype]), np.ones((16, 8), CTYPES[ctype])
    a[2, 4], b[9, 6] = np.nan, np.inf
    kernel = SmallKernel(MMA.replace("CTYPE", ctype), cache, threads=64)
    fragments = {"a": np.stack([a_fragments(a)] * 2), "b": np.stack([b_fragments(b)] * 2)}
    got = kernel(**fragments, d=np.zeros((2, 32, 4), np.float32))["d"]
    exact = np.full((16, 8), 16.0)
    exact[:, 6], exact[2] = np.inf, np.nan
    np.testing.assert_array_equal(got[0], d_fragments(exact))


@each_ctype
def test_pack_rounds_to_nearest_even(ctype: str, cache: BuildCache) -> None:
    dtype = CTYPES[ctype]
    step = epsilon(NAMES[ctype])
    values = [1 + step / 2, 1 + 1.5 * step, -1 - 0.51 * step, 3.4e38, 6e-8, -0.0, np.inf, np.nan]
    kernel = SmallKernel(
        """
        #include "common/types.cuh"
        extern "C" __global__ void test(const float* x, unsigned* y)
        {
            if (threadIdx.x < 4) y[threadIdx.x] = pack<CTYPE>(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
        }
        """.replace("CTYPE", ctype),
        cache,
    )
    x = np.array(values, np.float32)
    got = kernel(x=x, y=np.zeros(4, np.int32))["y"].view(dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got.astype(np.float64), x.astype(dtype).astype(np.float64))
    assert np.signbit(got.astype(np.float64))[5]


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(transposed: bool, cache: BuildCache) -> None:
    """Four matrices whose rows lie anywhere: every lane gives one row's address."""
    rng = np.random.default_rng(2)
    memory = rng.permutation(64 * 8).astype(np.float16).reshape(64, 8)  # 64 rows of 16 bytes
    rows = rng.permutation(64)[:32].astype(np.int32)
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(const __half* memory, const int* rows, unsigned* registers)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            for (int i = threadIdx.x; i < 512; i += 32) reinterpret_cast<__half*>(smem)[i] = memory[i];
            __syncthreads();
            uint32_t to[4];
            LOAD(to, shared_address(smem) + 16 * rows[threadIdx.x]);
            for (int i = 0; i < 4; ++i) registers[4 * threadIdx.x + i] = to[i];
        }
        """.replace("LOAD", "ldmatrix_transposed" if transposed else "ldmatrix"),
        cache,
        smem=1024,
    )
    got = kernel(memory=memory, rows=rows, registers=np.zeros((32, 4), np.int32))["registers"]
    for i in range(4):
        matrix = memory[rows[8 * i : 8 * i + 8]]
        np.testing.assert_array_equal(got[:, i], pairs(matrix.T if transposed else matrix, G, P))


@pytest.mark.parametrize("suffix", ["", "_transposed"])
def test_stmatrix(suffix: str, cache: BuildCache) -> None:
    """What ldmatrix reads, stmatrix writes: rows change places, and nothing else is touched."""
    rng = np.random.default_rng(3)
    memory = rng.permutation(64 * 8).astype(np.float16).reshape(64, 8)  # 64 rows of 16 bytes
    source, target = (rng.permutation(64)[:32].astype(np.int32) for _ in range(2))
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/ptx/stmatrix.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(__half* memory, const int* source, const int* target)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            for (int i = threadIdx.x; i < 512; i += 32) reinterpret_cast<__half*>(smem)[i] = memory[i];
            __syncthreads();
            uint32_t registers[4];
            ldmatrix_SUFFIX(registers, shared_address(smem) + 16 * source[threadIdx.x]);
            stmatrix_SUFFIX(shared_address(smem) + 16 * target[threadIdx.x], registers);
            __syncthreads();
            for (int i = threadIdx.x; i < 512; i += 32) memory[i] = reinterpret_cast<__half*>(smem)[i];
        }
        """.replace("_SUFFIX", suffix),
        cache,
        smem=1024,
    )
    expected = memory.copy()
    expected[target] = memory[source]
    got = kernel(memory=memory, source=source, target=target)["memory"]
    np.testing.assert_array_equal(got.reshape(64, 8), expected)


def test_named_barrier(cache: BuildCache) -> None:
    """Two pairs of warps, each with a barrier and a number of rounds of its own, read what the other warp wrote."""
    values = np.random.default_rng(4).permutation(128).astype(np.int32)
    kernel = SmallKernel(
        """
        #include "common/ptx/named_barrier.cuh"
        extern "C" __global__ void test(const int* values, int* sums)
        {
            __shared__ int shared[128];
            const int pair = threadIdx.x / 64;
            int mine = values[threadIdx.x];
            for (int round = 0; round < 3 + 4 * pair; ++round) {
                shared[threadIdx.x] = mine;
                named_barrier<64>(1 + pair);
                mine += shared[threadIdx.x ^ 32];
                named_barrier<64>(1 + pair);
            }
            sums[threadIdx.x] = mine;
        }
        """,
        cache,
        threads=128,
    )
    pairs = values.reshape(2, 2, 32)
    expected = [pairs[0].sum(0) * 4, pairs[1].sum(0) * 64]  # every round after the first doubles the sum
    got = kernel(values=values, sums=np.zeros(128, np.int32))["sums"].reshape(2, 2, 32)
    np.testing.assert_array_equal(got, np.repeat(np.stack(expected)[:, None], 2, axis=1))


TILE_SHAPES = [(HS, swizzled) for HS in (16, 32, 48, 64, 80, 96, 128, 192, 256) for swizzled in (True, False)]


def test_tiles_have_no_bank_conflicts(cache: BuildCache) -> None:
    """Chunks lie apart, eight rows of a column and eight neighbours in a row in all banks; `advance` agrees."""
    calls = "".join(f"report<SharedTile<{c}, {str(s).lower()}>>(places, wrong);" for c, s in TILE_SHAPES)
    kernel = SmallKernel(
        """
        #include "common/tile/shared_tile.cuh"
        template <class Tile>
        __device__ void report(int*& places, int* wrong)
        {
            for (int row = 0; row < 16; ++row)
                for (int chunk = 0; chunk < Tile::CHUNKS; ++chunk) {
                    places[row * Tile::CHUNKS + chunk] = Tile::offset(row, chunk);
                    for (int by = 2; chunk < 2 && chunk + by < Tile::CHUNKS; by += 2)
                        if (Tile::advance(Tile::offset(row, chunk), by) != Tile::offset(row, chunk + by)) ++*wrong;
                    if (Tile::offset(row + 8, chunk) != Tile::offset(row, chunk) + Tile::bytes(8)) ++*wrong;
                }
            places += 16 * Tile::CHUNKS;
        }
        extern "C" __global__ void test(int* places, int* wrong)
        {
            if (threadIdx.x == 0) { CALLS }
        }
        """.replace("CALLS", calls),
        cache,
    )
    size = sum(16 * cols // 8 for cols, _ in TILE_SHAPES)
    got = kernel(places=np.full(size, -1, np.int32), wrong=np.zeros(1, np.int32))
    assert got["wrong"][0] == 0
    places = got["places"]
    for cols, swizzled in TILE_SHAPES:
        mine, places = places[: 2 * cols].reshape(16, cols // 8), places[2 * cols :]
        assert (mine % 16 == 0).all()
        assert len(np.unique(mine)) == mine.size
        assert mine.max() < 16 * (2 * cols + (0 if swizzled else 16))
        if swizzled and cols in (48, 80):
            continue  # rows of an odd number of pairs of chunks: two rows in eight meet
        for first in (0, 8):
            banks = mine[first : first + 8] // 16 % 8
            assert (np.sort(banks, axis=0) == np.arange(8)[:, None]).all(), (cols, swizzled)


def test_copies_arrive_when_they_are_waited_for_and_not_before(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/async_copy.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(const float* from, float* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            float* const tile = reinterpret_cast<float*>(smem);
            const int at = 4 * threadIdx.x;
            copy_async(shared_address(tile + at), from + at, true);
            commit_copies();
            copy_async(shared_address(tile + 128 + at), from + 128 + at, true);
            copy_async(shared_address(tile + 256 + at), nullptr, false);
            commit_copies();
            commit_copies();
            for (int i = 0; i < 12; ++i) seen[i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
            wait_for_copies<2>();
            for (int i = 0; i < 12; ++i) seen[384 + i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
            wait_for_copies<0>();
            for (int i = 0; i < 12; ++i) seen[768 + i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
        }
        """,
        cache,
        smem=3 * 512,
    )
    source = np.arange(256, dtype=np.float32)
    seen = kernel(**{"from": source}, seen=np.zeros((3, 3, 128), np.float32))["seen"]
    np.testing.assert_array_equal(seen[1, 0], source[:128])
    if SmallKernel.emulated:  # on a GPU copies may be early
        assert np.isnan(seen[0]).all()
        assert np.isnan(seen[1, 1:]).all()
    np.testing.assert_array_equal(seen[2, :2].reshape(-1), source)
    assert (seen[2, 2] == 0).all()


@pytest.mark.parametrize(("cols", "swizzled", "threads"), [(64, True, 128), (96, True, 64), (256, False, 32)])
def test_tile_copier(cols: int, swizzled: bool, threads: int, cache: BuildCache) -> None:
    """Rows 5 to 53 of a matrix of 40 rows, by chunks and by elements: zeros beyond, whatever lies there."""
    kernel = SmallKernel(
        """
        #include "common/tile/tile_copy.cuh"
        using Tile = SharedTile<COLS, SWIZZLED>;
        extern "C" __global__ void test(const __half* matrix, const __half* strided, __half* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            const TileCopier<Tile, THREADS> copier;
            for (int way = 0; way < 2; ++way) {
                const __half* const data = way == 0 ? matrix : strided;
                const View<__half, 4> view{const_cast<__half*>(data), {0, 0, (way + 1) * COLS, way + 1}};
                const bool vectors = allows_vectors<8>(view);
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
        .replace("SWIZZLED", str(swizzled).lower())
        .replace("THREADS", str(threads)),
        cache,
        threads=threads,
        smem=48 * (2 * cols + 16),
    )
    matrix = np.random.default_rng(3).standard_normal((64, cols)).astype(np.float16)
    matrix[40:] = np.nan
    strided = np.full((64, cols, 2), np.nan, np.float16)
    strided[..., 0] = matrix
    seen = kernel(matrix=matrix, strided=strided, seen=np.full((2, 48, cols), -1, np.float16))["seen"]
    expected = np.concatenate([matrix[5:40], np.zeros((13, cols), np.float16)])
    np.testing.assert_array_equal(seen[0], expected)
    np.testing.assert_array_equal(seen[1], expected)


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
