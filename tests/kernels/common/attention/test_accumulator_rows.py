"""The online softmax of scores in wgmma's accumulators: weights, sums and log-sum-exps of rows that come in pieces."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/accumulator_rows.cuh"
#include "common/warp/reduce.cuh"
extern "C" __global__ void test(const float* x, float* weights, unsigned* pairs, float* lse, int* grown)
{
    const Scores<false> scores(64, 64, SCALE);
    AccumulatorRows<32, false> rows;
    float s[16], earlier[16] = {};
    for (int part = 0; part < 2; ++part) {  // columns 0 to 31, then 32 to 63
        for (int i = 0; i < 16; ++i)
            s[i] = x[(accumulator_row() + i / 2 % 2 * 8) * 64 + 32 * part + i / 4 * 8 + accumulator_col() + i % 2];
        const int first = accumulator_row() % 16 + accumulator_col() - 20;
        const int beyond[2] = {first, first + 8};
        if (part == 1) hide_beyond(s, beyond);
        if (rows.weigh(s, scores)) {
            if (part == 1) grown[threadIdx.x] = 1;
            for (int i = 0; i < 16; ++i) earlier[i] *= rows.factor[i / 2 % 2];
        }
        if (part == 0)
            for (int i = 0; i < 16; ++i) earlier[i] = s[i];
    }
    uint32_t p[2][4];
    round_weights<__half>(p, s);
    for (int i = 0; i < 8; ++i) pairs[threadIdx.x * 8 + i] = p[i / 4][i % 4];
    for (int r = 0; r < 2; ++r) {
        const float whole = rows.whole_sum(r);
        lse[accumulator_row() + 8 * r] = rows.log_sum_exp(r, whole, scores);
        for (int i = 2 * r; i < 16; i += 4)
            for (int e = 0; e < 2; ++e) {
                float* const to = weights + (accumulator_row() + 8 * r) * 64 + i / 4 * 8 + accumulator_col() + e;
                to[0] = earlier[i + e] / whole;
                to[32] = s[i + e] / whole;
            }
    }
}
"""


def softmax(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    peak = x.max(axis=1, keepdims=True)
    p = np.exp(x - peak)
    return p / p.sum(axis=1, keepdims=True), peak[:, 0] + np.log(p.sum(axis=1))


@pytest.mark.parametrize(
    ("scale", "size"), [(0.5, 4.0), (0.5, 40.0), (8.0, 2000.0)], ids=["small", "growing", "coarse"]
)
def test_rows_in_two_pieces(scale: float, size: float, cache: BuildCache) -> None:
    """In the second piece some scores are hidden. Small scores never rescale; of coarse ones the products are exact."""
    kernel = SmallKernel(KERNEL.replace("SCALE", f"{scale}f"), cache, threads=128)
    x = (np.random.default_rng(1).standard_normal((64, 64)) * size).astype(np.float32)
    if size > 1000:
        x = np.round(x)
    x[:, 40] += 10 * size * (size > 4)  # a maximum that grows, in the second piece
    got = kernel(
        x=x, weights=np.zeros((64, 64), np.float32), pairs=np.zeros((128, 8), np.int32), lse=np.zeros(64, np.float32),
        grown=np.zeros(128, np.int32),
    )  # fmt: skip
    row, col = np.mgrid[0:64, 0:64]
    hidden = (col >= 32) & (row % 16 + col - 32 - 20 > 0)
    p, lse = softmax(np.where(hidden, -np.inf, scale * x.astype(np.float64)))
    np.testing.assert_allclose(got["weights"], p, rtol=0, atol=4e-5)
    assert (got["weights"][hidden] == 0).all()
    np.testing.assert_allclose(got["lse"], lse, rtol=1e-6, atol=1e-5)
    assert got["grown"].any() == (size > 4)
    first, second = got["pairs"].view(np.float16).reshape(128, 2, 4, 2)[0, 0, :2]
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
