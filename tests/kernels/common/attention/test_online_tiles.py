"""The online softmax of a warp's rows on tiles: masks, maxima that grow or do not, weights, log-sum-exps."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/online_tiles.cuh"
constexpr int T = 40, T_KV = 48;
extern "C" __global__ void test(const float* x, float* weights, float* o, float* lse)
{
    const Scores<CAUSAL> scores(T, T_KV, 0.5f);
    const RowMap<false> map(1, 1, T);
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    OnlineTiles<2, 1> state;
    for (int m = 0; m < 2; ++m)
        for (int e = 0; e < 4; ++e) state.o[m][0][e] = 1.0f;
    for (int key = 0; key < T_KV; key += 16) {
        float s[2][2][4], highest[4];
        for (int m = 0; m < 2; ++m)
            for (int n = 0; n < 2; ++n)
                for (int e = 0; e < 4; ++e)
                    s[m][n][e] = x[(16 * m + e / 2 * 8 + g) * T_KV + key + 8 * n + 2 * t + e % 2];
        hide_keys_of_rows<1>(s, scores, map, g, key + 2 * t);
        find_highest(highest, s);
        raise_maxima(state, highest, scores);
        uint32_t p[2][4];
        weigh<__half, POLYNOMIAL>(p, s, 0, state, scores);
        for (int m = 0; m < 2; ++m)
            for (int i = 0; i < 4; ++i) {
                const float2 both = unpack_pair<__half>(p[m][i]);
                const int row = 16 * m + i % 2 * 8 + g;
                float* const to = weights + row * T_KV + key + i / 2 * 8 + 2 * t;
                to[0] = both.x * exp2f(state.rows[2 * m + i % 2].maximum - 16.0f);
                to[1] = both.y * exp2f(state.rows[2 * m + i % 2].maximum - 16.0f);
            }
    }
    for (int r = 0; r < 4; ++r) {
        state.rows[r].sum = reduce_lanes<Sum, 1, 4>(state.rows[r].sum);
        o[8 * r + g] = state.o[r / 2][0][r % 2 * 2];
    }
    write_log_sums(lse, state, map, scores, 0, 2, g);
}
"""


@pytest.mark.parametrize(("causal", "polynomial"), [("true", 0), ("false", 1)])
def test_rows_of_three_tiles(causal: str, polynomial: int, cache: BuildCache) -> None:
    kernel = SmallKernel(KERNEL.replace("CAUSAL", causal).replace("POLYNOMIAL", str(polynomial)), cache)
    x = (np.random.default_rng(1).standard_normal((32, 48)) * 2).astype(np.float32)
    x[3, 20] = 40  # grows, so that its warp rescales
    lse = np.full((2, 40), 9, np.float32)
    got = kernel(x=x, weights=np.zeros((32, 48), np.float32), o=np.zeros(32, np.float32), lse=lse)
    row, key = np.mgrid[0:32, 0:48]
    s = np.where((key <= row + 8) | (causal == "false"), 0.5 * x.astype(np.float64), -np.inf)
    weights = np.exp(s) * 2.0**-16
    np.testing.assert_allclose(got["weights"], weights, rtol=2e-3, atol=1e-7 * weights.max())
    assert (got["weights"][np.isneginf(s)] == 0).all()
    np.testing.assert_allclose(got["lse"][1, :32], np.log(np.exp(s).sum(axis=1)), rtol=0, atol=1e-4)
    assert (got["lse"][0] == 9).all()
    assert (got["lse"][1, 32:] == 9).all()
    assert got["o"][3] < 2.0**-8  # what was summed before weighs less
    assert (got["o"] <= 1).all()
