"""Rows of an online softmax."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


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
