"""Which keys a query sees, asked in every way; weights and log-sum-exps of scores."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

VISIBLE = """
#include "common/attention/score.cuh"
extern "C" __global__ void test(int* visible, int* beyond, int* seen, int* first, int* all)
{
    const Scores<CAUSAL> scores(LENGTH, KEYS, 0.5f);
    for (int i = threadIdx.x; i < 16 * 16; i += 32) {
        const int query = i / 16, key = i % 16;
        visible[i] = scores.visible(query, key);
        beyond[i] = scores.beyond(query, key);
        all[i] = scores.all_visible(query, query + 2, key, key + 3);
        seen[query] = scores.keys_seen(query);
        first[key] = scores.first_query(key);
    }
}
"""


@pytest.mark.parametrize(("T", "T_kv"), [(12, 12), (9, 13), (13, 5)])
@pytest.mark.parametrize("causal", [True, False])
def test_all_ways_of_asking_agree(T: int, T_kv: int, causal: bool, cache: BuildCache) -> None:
    text = VISIBLE.replace("CAUSAL", str(causal).lower()).replace("LENGTH", str(T)).replace("KEYS", str(T_kv))
    square, line = np.zeros((16, 16), np.int32), np.zeros(16, np.int32)
    got = SmallKernel(text, cache)(visible=square, beyond=square, seen=line, first=line, all=square)
    query, key = np.mgrid[0:16, 0:16]
    visible = (query < T) & (key < T_kv) & ((key <= query + T_kv - T) | (not causal))
    np.testing.assert_array_equal(got["visible"], visible)
    np.testing.assert_array_equal((got["beyond"] <= 0)[:T, :T_kv], visible[:T, :T_kv])
    np.testing.assert_array_equal(got["seen"][:T], visible[:T].sum(axis=1))
    for k in range(T_kv):
        np.testing.assert_array_equal(visible[:T, k], np.arange(T) >= got["first"][k])
    for q, k in np.ndindex(14, 13):
        assert got["all"][q, k] == visible[q : q + 2, k : k + 3].all(), (q, k)


def test_weights_and_log_sums(cache: BuildCache) -> None:
    """A weight by its row's log-sum-exp, by way of base 2 and without: exp(scale * dot - lse)."""
    kernel = SmallKernel(
        """
        #include "common/attention/score.cuh"
        extern "C" __global__ void test(const float* dots, const float* lse, float* by_origin, float* natural,
                                        float* sums, float* gradient)
        {
            const Scores<false> scores(1, 32, 0.3f);
            const int i = threadIdx.x;
            by_origin[i] = scores.weight(dots[i], scores.origin_of(lse[i]));
            natural[i] = scores.probability(dots[i], lse[i]);
            OnlineRow row;
            row.maximum = scores.base2(dots[i]);
            row.sum = i == 31 ? 0.0f : 1.0f + i;
            sums[i] = scores.log_sum_exp(row);
            gradient[i] = scores.score_gradient(dots[i]);
        }
        """,
        cache,
    )
    rng = np.random.default_rng(1)
    dots, lse = (rng.uniform(-30, 30, 32).astype(np.float32) for _ in range(2))
    lse[:2] = np.inf, 12
    empty = np.zeros(32, np.float32)
    got = kernel(dots=dots, lse=lse, by_origin=empty, natural=empty, sums=empty, gradient=empty)
    exact: NDArray[Any] = np.exp(np.float64(np.float32(0.3)) * dots - lse.astype(np.float64))
    assert got["by_origin"][0] == got["natural"][0] == 0
    np.testing.assert_allclose(got["by_origin"], exact, rtol=1e-5)
    np.testing.assert_allclose(got["natural"], exact, rtol=3e-6)
    sums = np.float64(np.float32(0.3)) * dots + np.log(1.0 + np.arange(32))
    np.testing.assert_allclose(got["sums"][:31], sums[:31], rtol=0, atol=3e-6)
    assert got["sums"][31] == -np.inf
    np.testing.assert_array_equal(got["gradient"], dots * np.float32(0.3))
