"""Headers of a few lines, each alone against NumPy: reductions, exponentials, online softmax, conversions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

CTYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16), "float": np.dtype(np.float32)}
ULP = 2.0**-23


def whole(seed: int, n: int) -> NDArray[np.float32]:
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-1000, 1001, n).astype(np.float32)


REDUCTIONS = """
#include "common/warp/cooperative_reduce.cuh"
#include "common/warp/reduce.cuh"
#include "common/warp/shared_reduce.cuh"
extern "C" __global__ void test(const float* in, float* lanes, float* warps, float* blocks, float* tiles, float* trees)
{
    __shared__ float scratch[128];
    const int at = threadIdx.x;
    lanes[at] = reduce_lanes<Sum, 1, 4>(in[at]);
    lanes[128 + at] = reduce_lanes<Max, 4, 32>(in[at]);
    warps[at] = reduce_warp<Sum>(in[at]);
    warps[128 + at] = reduce_warp<Max>(in[at]);
    blocks[at] = reduce_block<Sum, 128>(in[at], scratch);
    blocks[128 + at] = reduce_block<Max, 128>(in[at], scratch);
    tiles[at] = reduce_tile<Sum, 8>(in[at]);
    tiles[128 + at] = reduce_tile<Max, 32>(in[at]);
    trees[at] = reduce_tree<Sum, 128>(in[at], scratch);
    trees[128 + at] = reduce_tree<Max, 128>(in[at], scratch);
}
"""


def test_reductions(cache: BuildCache) -> None:
    x, empty = whole(1, 128), np.zeros((2, 128), np.float32)
    kernel = SmallKernel(REDUCTIONS, cache, threads=128)
    got = kernel(**{"in": x}, lanes=empty, warps=empty, blocks=empty, tiles=empty, trees=empty)
    by_4, by_8, by_32 = (x.reshape(-1, n) for n in (4, 8, 32))
    strided = x.reshape(4, 8, 4).max(axis=1, keepdims=True)  # lanes that agree in their two lowest bits
    expected = {
        "lanes": (by_4.sum(1, keepdims=True), strided, (by_4, x.reshape(4, 8, 4))),
        "warps": (by_32.sum(1, keepdims=True), by_32.max(1, keepdims=True), (by_32, by_32)),
        "blocks": (x.sum(), x.max(), (x, x)),
        "tiles": (by_8.sum(1, keepdims=True), by_32.max(1, keepdims=True), (by_8, by_32)),
        "trees": (x.sum(), x.max(), (x, x)),
    }
    for name, (total, largest, shapes) in expected.items():
        np.testing.assert_array_equal(got[name][0], np.broadcast_to(total, shapes[0].shape).reshape(-1), name)
        np.testing.assert_array_equal(got[name][1], np.broadcast_to(largest, shapes[1].shape).reshape(-1), name)


def test_reductions_pass_infinity_on(cache: BuildCache) -> None:
    x, empty = np.full(128, -np.inf, np.float32), np.zeros((2, 128), np.float32)
    x[77] = -3
    kernel = SmallKernel(REDUCTIONS, cache, threads=128)
    got = kernel(**{"in": x}, lanes=empty, warps=empty, blocks=empty, tiles=empty, trees=empty)
    assert (got["blocks"][1] == -3).all()
    assert (got["trees"][1] == -3).all()
    assert (got["warps"][1].reshape(4, 32) == np.array([-np.inf, -np.inf, -3, -np.inf])[:, None]).all()
    assert (got["blocks"][0] == -np.inf).all()


def test_exponentials_are_good_to_two_units(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/arithmetic.cuh"
        extern "C" __global__ void test(const float* x, float* y)
        {
            for (int i = threadIdx.x; i < 4096; i += 32) y[i] = exp2_fast(x[i]);
        }
        """,
        cache,
    )
    x = np.random.default_rng(2).uniform(-125, 127, 4096).astype(np.float32)
    x[:7] = [0, -np.inf, np.inf, np.nan, 1, -1, 127]
    got = kernel(x=x, y=np.zeros(4096, np.float32))["y"]
    np.testing.assert_array_equal(got[:4], [1, 0, np.inf, np.nan])
    exact = np.exp2(x[4:].astype(np.float64))
    assert (np.abs(got[4:] - exact) <= 2 * ULP * exact).all()


def test_rows_of_an_online_softmax(cache: BuildCache) -> None:
    """A thread a row: scores one after the other, as a kernel that sees a key at a time adds them up."""
    kernel = SmallKernel(
        """
        #include "common/attention/score.cuh"
        #include "common/attention/softmax.cuh"
        #include "common/ptx/arithmetic.cuh"
        extern "C" __global__ void test(const float* scores, float* lse, float* value)
        {
            OnlineRow row;
            float sum = 0.0f;
            for (int key = 0; key < 64; ++key) {
                const float score = scores[threadIdx.x * 64 + key] * LOG2_E;
                sum *= row.raise(score);
                const float weight = exp2_fast(score - row.origin());
                row.sum += weight;
                sum += weight * key;
            }
            lse[threadIdx.x] = Scores<false>(1, 64, 1.0f).log_sum_exp(row);
            value[threadIdx.x] = row.sum > 0.0f ? sum / row.sum : 0.0f;
        }
        """,
        cache,
    )
    scores = (10 * np.random.default_rng(3).standard_normal((32, 64))).astype(np.float32)
    scores[:, 0] = -np.inf
    scores[5] = -np.inf  # a row without keys
    scores[6, 1:] = -np.inf
    scores[6, 40] = 4
    got = kernel(scores=scores, lse=np.zeros(32, np.float32), value=np.zeros(32, np.float32))
    assert (got["lse"][5], got["value"][5]) == (-np.inf, 0)
    rows = np.arange(32) != 5
    exact = scores[rows].astype(np.float64)
    peak = exact.max(axis=1, keepdims=True)
    p = np.exp(exact - peak)
    lse = (peak + np.log(p.sum(axis=1, keepdims=True)))[:, 0]
    np.testing.assert_allclose(got["lse"][rows], lse, rtol=0, atol=1e-5)
    np.testing.assert_allclose(got["value"][rows], (p @ np.arange(64)) / p.sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("ctype", CTYPES)
def test_conversions_round_to_nearest_even(ctype: str, cache: BuildCache) -> None:
    """Loads and stores of vectors of every width, and of rows past the cache: all elements arrive, rounded once."""
    kernel = SmallKernel(
        """
        #include "common/tile/row_access.cuh"
        template <int N>
        __device__ void copy(const float* x, CTYPE* y, float* z, CTYPE* w)
        {
            float row[N];
            load(x + N * threadIdx.x, row);
            store(y + N * threadIdx.x, row);
            float back[N];
            load(y + N * threadIdx.x, back);
            for (int i = 0; i < N; ++i) z[N * threadIdx.x + i] = back[i];
            read_row<Access::STREAMING>(y + N * threadIdx.x, back);
            write_row<Access::STREAMING>(w + N * threadIdx.x, back);
        }
        extern "C" __global__ void test(const float* x, CTYPE* y, float* z, CTYPE* w)
        {
            copy<8>(x, y, z, w);
            copy<4>(x + 256, y + 256, z + 256, w + 256);
            copy<1>(x + 384, y + 384, z + 384, w + 384);
        }
        """.replace("CTYPE", ctype),
        cache,
    )
    dtype = CTYPES[ctype]
    x = (np.random.default_rng(4).standard_normal(416) * 100).astype(np.float32)
    x[:6] = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, -0.0]
    x[6:8] = [np.nan, -np.inf]
    zeros = np.zeros(416, dtype)
    got = kernel(x=x, y=zeros, z=np.zeros(416, np.float32), w=zeros)
    with np.errstate(over="ignore"):
        expected = x.astype(dtype)
    for name in ("y", "w"):
        np.testing.assert_array_equal(values(got[name]), values(expected), name)
    np.testing.assert_array_equal(got["z"], expected.astype(np.float32))
    assert np.signbit(got["z"][5])


def values(array: NDArray[Any]) -> NDArray[np.float64]:
    return array.astype(np.float64)
