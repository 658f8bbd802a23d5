"""The online softmax of fp32 scores in wgmma's accumulators: weights and log-sum-exps of rows that come in pieces."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.attention.test_accumulator_rows import softmax

KERNEL = """
#include "common/attention/online_accumulators.cuh"
extern "C" __global__ void test(const float* x, float* weights, float* lse)
{
    const Scores<false> scores(64, 64, SCALE);
    OnlineRow rows[2];
    float s[16], earlier[16] = {}, factor[2];
    for (int part = 0; part < 2; ++part) {  // columns 0 to 31, then 32 to 63
        for (int i = 0; i < 16; ++i)
            s[i] = x[(accumulator_row() + i / 2 % 2 * 8) * 64 + 32 * part + i / 4 * 8 + accumulator_col() + i % 2];
        soften_accumulators(s, rows, factor, scores);
        for (int i = 0; i < 16; ++i) earlier[i] = part == 0 ? s[i] : earlier[i] * factor[i / 2 % 2];
    }
    for (int r = 0; r < 2; ++r) {
        rows[r].sum = reduce_lanes<Sum, 1, 4>(rows[r].sum);
        lse[accumulator_row() + 8 * r] = scores.log_sum_exp(rows[r]);
        for (int i = 2 * r; i < 16; i += 4)
            for (int e = 0; e < 2; ++e) {
                float* const to = weights + (accumulator_row() + 8 * r) * 64 + i / 4 * 8 + accumulator_col() + e;
                to[0] = earlier[i + e] / rows[r].sum;
                to[32] = s[i + e] / rows[r].sum;
            }
    }
}
"""


@pytest.mark.parametrize(("scale", "size"), [(0.5, 4.0), (0.125, 4000.0)], ids=["small", "large"])
def test_fp32_rows_in_two_pieces(scale: float, size: float, cache: BuildCache) -> None:
    """As exact as fp32 is, of large scores, too; hidden scores have no weight, and a row may have no other."""
    x = (np.random.default_rng(1).standard_normal((64, 64)) * size).astype(np.float32)
    x[::3, 40] += np.float32(size)  # a maximum that grows, in the second piece
    x[1::3, :32] = -np.inf  # nothing in the first
    x[2::3, 50:] = -np.inf
    x[5] = -np.inf
    kernel = SmallKernel(KERNEL.replace("SCALE", f"{scale}f"), cache, threads=128)
    got = kernel(x=x, weights=np.zeros((64, 64), np.float32), lse=np.zeros(64, np.float32))
    seen = np.arange(64) != 5
    p, lse = softmax(scale * x[seen].astype(np.float64))
    np.testing.assert_allclose(got["weights"][seen], p, rtol=2e-6 * max(1, size / 16), atol=1e-7)
    np.testing.assert_allclose(got["lse"][seen], lse, rtol=1e-6, atol=1e-6)
    assert np.isneginf(got["lse"][5])
