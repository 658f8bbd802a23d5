"""Masks, weights and gradients of scores that lie transposed in wgmma's accumulators, against NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KEYS, QUERIES = 64, 48

KERNEL = """
#include "common/attention/transposed_scores.cuh"
extern "C" __global__ void test(float* s, const float* dp, const float* origins, const float* deltas, float* ds)
{
    __shared__ float known[2][QUERIES];
    for (int i = threadIdx.x; i < QUERIES; i += 128) {
        known[0][i] = origins[i];
        known[1][i] = deltas[i];
    }
    __syncthreads();
    const auto at = [](int i) {
        return (accumulator_row() + i / 2 % 2 * 8) * QUERIES + i / 4 * 8 + accumulator_col() + i % 2;
    };
    float a[QUERIES / 2], b[QUERIES / 2];
    for (int i = 0; i < QUERIES / 2; ++i) {
        a[i] = s[at(i)];
        b[i] = dp[at(i)];
    }
    const Scores<true> scores(60, 50, 0.25f);
    hide_before(a, {20 - accumulator_col() + accumulator_row(), 28 - accumulator_col() + accumulator_row()});
    weigh_transposed(a, scores, shared_address(known[0]));
    uint32_t p[QUERIES / 16][4], d[QUERIES / 16][4];
    round_weights<__half>(p, a);
    for (int i = 0; i < QUERIES / 16; ++i)
        differentiate_transposed<__half>(d[i], [&](int k) { return unpack_pair<__half>(p[i][k]); }, b + 8 * i,
                                         shared_address(known[1]) + 64 * i);
    for (int i = 0; i < QUERIES / 2; ++i) {
        s[at(i)] = to_float(half_of<__half>(p[i / 8][i % 8 / 2], i % 2));
        ds[at(i)] = to_float(half_of<__half>(d[i / 8][i % 8 / 2], i % 2));
    }
}
"""


def computed(cache: BuildCache) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(3)
    s, dp = (random.standard_normal((KEYS, QUERIES)).astype(np.float32) for _ in range(2))
    origins, deltas = (random.standard_normal(QUERIES).astype(np.float32) for _ in range(2))
    origins[5], deltas[5] = np.inf, 0.0  # a query without keys
    kernel = SmallKernel(KERNEL.replace("QUERIES", str(QUERIES)), cache, threads=128)
    got = kernel(s=s, dp=dp, origins=origins, deltas=deltas, ds=np.zeros_like(s))
    seen = np.arange(QUERIES) >= 20 + np.arange(KEYS)[:, None]
    weights = np.where(seen, np.exp2(s.astype(np.float64) * 0.25 / np.log(2) - origins), 0.0)
    return {"p": got["s"], "ds": got["ds"], "weights": weights, "gradients": weights * (dp - deltas), "seen": seen}


def test_weights_and_gradients_of_transposed_scores(cache: BuildCache) -> None:
    run = computed(cache)
    assert run["seen"].any()
    np.testing.assert_allclose(run["p"], run["weights"], rtol=6e-4)
    np.testing.assert_array_equal(run["p"][~run["seen"]], 0)
    np.testing.assert_array_equal(run["p"][:, 5], 0)
    np.testing.assert_allclose(run["ds"], run["gradients"], rtol=1.2e-3, atol=1e-6)
    np.testing.assert_array_equal(run["ds"][~run["seen"]], 0)
