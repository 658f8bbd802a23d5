"""fp32 products of wgmma by sums of two numbers, against NumPy: A from registers or shared memory, B in two tiles."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/ptx/fences.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/warp/wide_operands.cuh"
constexpr SmallParts SMALL = SmallParts::SMALL_IN;
using A = SlabTile<64, 2 * DEPTH>;
using B = SlabTile<24, 2 * DEPTH>;
extern __shared__ __align__(1024) unsigned char smem[];
extern "C" __global__ void __launch_bounds__(128) test(const float* a, const float* b, float* held, float* shared)
{
    const SharedAddress a_tile = shared_address(smem), b_tile = a_tile + 2 * A::BYTES;
    for (int i = threadIdx.x; i < 24 * DEPTH / 8; i += 128) {
        float x[8];
        for (int e = 0; e < 8; ++e) x[e] = b[8 * i + e];
        const WideLine<SMALL> line(x);
        for (int half = 0; half < 2; ++half)
            for (int e = 0; e < 4; ++e) {
                const int at = 2 * A::BYTES + B::offset(i / (DEPTH / 8), i % (DEPTH / 8) * 16 + 8 * half) + 4 * e;
                *reinterpret_cast<uint32_t*>(smem + at) = line.big[half][e];
                *reinterpret_cast<uint32_t*>(smem + B::BYTES + at) = line.small[half][e];
            }
    }
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, row = warp_row + lane / 4, col = lane % 4 * 2;
    uint32_t big[DEPTH / 8][4], small[DEPTH / 8][4];
    for (int step = 0; step < DEPTH / 8; ++step) {
        for (int i = 0; i < 4; ++i)
            big[step][i] = __float_as_uint(a[(row + i % 2 * 8) * DEPTH + 8 * step + col + i / 2]);
        take_small<SMALL>(small[step], big[step]);
        const int at = A::offset(warp_row + lane % 16, 16 * step + lane / 16 * 8);
        stmatrix(a_tile + at, big[step]);
        stmatrix(a_tile + A::BYTES + at, small[step]);
    }
    fence_async_shared();
    __syncthreads();
    float x[12], y[12];
    for (int i = 0; i < 12; ++i) x[i] = y[i] = 1.0f;
    const uint64_t from = settled(A::rows_by_k(a_tile)), to = settled(B::rows_by_k(b_tile));
    wgmma_fence(x, y, big, small);
    for (int step = 0; step < DEPTH / 8; ++step) {
        const uint64_t b_big = advance(to, B::along_columns(step));
        const uint64_t a_big = advance(from, A::along_columns(step));
        multiply_small<SMALL, 24>(x, big[step], small[step], b_big, advance(b_big, B::BYTES), step == 0);
        multiply_small<SMALL, 24>(y, a_big, advance(a_big, A::BYTES), b_big, advance(b_big, B::BYTES), false);
    }
    order_products<SMALL>();
    for (int step = 0; step < DEPTH / 8; ++step) {
        const uint64_t b_big = advance(to, B::along_columns(step));
        multiply_big<24>(x, big[step], b_big);
        multiply_big<24>(y, advance(from, A::along_columns(step)), b_big);
    }
    wgmma_commit();
    wgmma_wait<0>(x, y);
    for (int i = 0; i < 12; ++i) {
        const int at = (row + i / 2 % 2 * 8) * 24 + i / 4 * 8 + col + i % 2;
        held[at] = x[i];
        shared[at] = y[i];
    }
}
"""


def products(a: NDArray[Any], b: NDArray[Any], small: str, cache: BuildCache) -> dict[str, NDArray[Any]]:
    depth = a.shape[1]
    text = KERNEL.replace("DEPTH", str(depth)).replace("SMALL_IN", small)
    smem = 2 * (64 + 24) * 256 * -(-depth // 32)
    outputs = {name: np.zeros((64, 24), np.float32) for name in ("held", "shared")}
    return SmallKernel(text, cache, threads=128, smem=smem)(a=a, b=b, **outputs)


@pytest.mark.parametrize(("small", "depth"), [("BF16", 8), ("TF32", 16), ("BF16", 40), ("TF32", 40)])
def test_wide_products(small: str, depth: int, cache: BuildCache) -> None:
    """As good as promised, for factors of any size; lines of 32, 64 and 128 bytes, and two slabs."""
    random = np.random.default_rng(depth)
    a, b = (
        (random.standard_normal((n, depth)) * 2.0 ** random.integers(-20, 20, (n, 1))).astype(np.float32)
        for n in (64, 24)
    )
    got = products(a, b, small, cache)
    a_wide, b_wide = a.astype(np.float64), b.astype(np.float64)
    error = 2.0**-18.5 if small == "BF16" else 2.0**-20
    bound = error * (np.abs(a_wide) @ np.abs(b_wide).T)
    assert (np.abs(got["held"] - a_wide @ b_wide.T) <= bound).all()
    assert (np.abs(got["shared"] - 1 - a_wide @ b_wide.T) <= bound + 2.0**-18).all()


@pytest.mark.parametrize("small", ["BF16", "TF32"])
def test_what_two_numbers_hold_is_exact(small: str, cache: BuildCache) -> None:
    """Factors of 11 + 4 bits times powers of two: no product but that of the small parts is lost."""
    random = np.random.default_rng(3)
    a = (2048 * random.integers(64, 128, (64, 8)) + random.integers(0, 16, (64, 8))).astype(np.float32)
    b = np.exp2(random.integers(0, 3, (24, 8))).astype(np.float32)
    got = products(a, b, small, cache)
    np.testing.assert_array_equal(got["held"], a.astype(np.float64) @ b.T.astype(np.float64))
    np.testing.assert_array_equal(got["shared"], got["held"] + 1)


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_factors_that_are_not_finite(wrong: float, cache: BuildCache) -> None:
    a, b = np.ones((64, 8), np.float32), np.ones((24, 8), np.float32)
    a[5, 3] = b[7, 6] = wrong
    got = products(a, b, "BF16", cache)
    for name in ("held", "shared"):
        finite = np.isfinite(got[name])
        assert not finite[5].any()
        assert not finite[:, 7].any()
        assert finite[np.arange(64) != 5][:, np.arange(24) != 7].all()
