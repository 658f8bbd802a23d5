"""Masks and weights on tiles of scores, against NumPy: which elements a lane hides, and what it makes of the others."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

ROWS, COLS = 32, 24  # M = 2, N = 3

KERNEL = """
#include "common/attention/score_tiles.cuh"
extern "C" __global__ void test(float* s, float* dp, const float* sums)
{
    const int lane = threadIdx.x % 32;
    float a[2][3][4], b[2][3][4];
    const auto at = [&](int m, int n, int e) {
        return (16 * m + e / 2 * 8 + lane / 4) * 24 + 8 * n + lane % 4 * 2 + e % 2;
    };
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 3; ++n)
            for (int e = 0; e < 4; ++e) {
                a[m][n][e] = s[at(m, n, e)];
                b[m][n][e] = dp[at(m, n, e)];
            }
    const Scores<CAUSAL> scores(T, T_KV, 0.5f);
    RowSums rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = reinterpret_cast<const RowSums*>(sums)[8 * r + lane / 4];
    CALL;
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 3; ++n)
            for (int e = 0; e < 4; ++e) {
                s[at(m, n, e)] = a[m][n][e];
                dp[at(m, n, e)] = b[m][n][e];
            }
}
"""


def run(
    cache: BuildCache, call: str, sums: NDArray[Any], *, T: int = 50, T_kv: int = 50, causal: bool = True
) -> tuple[NDArray[Any], ...]:
    """S and dP before, and what `call` makes of them."""
    text = KERNEL.replace("CALL", call).replace("CAUSAL", str(causal).lower())
    kernel = SmallKernel(text.replace("T_KV", str(T_kv)).replace("(T,", f"({T},"), cache)
    rng = np.random.default_rng(1)
    s, dp = (rng.standard_normal((ROWS, COLS)).astype(np.float32) for _ in range(2))
    got = kernel(s=s, dp=dp, sums=sums)
    return s, dp, got["s"], got["dp"]


NO_SUMS = np.zeros((64, 2), np.float32)


@pytest.mark.parametrize("late", ["true", "false"])
@pytest.mark.parametrize(("T", "T_kv", "causal"), [(50, 50, True), (60, 40, True), (40, 60, True), (50, 30, False)])
def test_hidden_queries(late: str, T: int, T_kv: int, causal: bool, cache: BuildCache) -> None:
    """Keys from 10 on in rows, queries from 15 on in columns; keys that do not exist are seen by no query."""
    call = f"hide_queries<{late}>(a, scores, 10 + lane / 4, 15, lane)"
    s, _, got, _ = run(cache, call, NO_SUMS, T=T, T_kv=T_kv, causal=causal)
    key, query = np.arange(10, 10 + ROWS)[:, None], np.arange(15, 15 + COLS)
    seen = np.broadcast_to(key < T_kv, s.shape) & ((key <= query + T_kv - T) | (not causal))
    assert seen.any()
    assert not seen.all()
    np.testing.assert_array_equal(got, np.where(seen, s, -np.inf))


@pytest.mark.parametrize(("T", "T_kv", "causal"), [(50, 50, True), (60, 40, True), (40, 60, True), (50, 30, False)])
def test_hidden_keys(T: int, T_kv: int, causal: bool, cache: BuildCache) -> None:
    s, _, got, _ = run(cache, "hide_keys(a, scores, 5 + lane / 4, 12)", NO_SUMS, T=T, T_kv=T_kv, causal=causal)
    query, key = np.arange(5, 5 + ROWS)[:, None], np.arange(12, 12 + COLS)
    seen = np.broadcast_to(key < T_kv, s.shape) & ((key <= query + T_kv - T) | (not causal))
    assert seen.any()
    assert not seen.all()
    np.testing.assert_array_equal(got, np.where(seen, s, -np.inf))


def sums_of(seed: int) -> NDArray[np.float32]:
    """(lse, delta) of 64 queries; one sees no key."""
    sums = np.random.default_rng(seed).standard_normal((64, 2)).astype(np.float32)
    sums[20, 0] = np.inf
    return sums


def weights(s: NDArray[Any], lse: NDArray[Any], natural: str) -> NDArray[np.float64]:
    scores = s.astype(np.float64) * 0.5
    exact: NDArray[np.float64] = np.exp(scores - lse) if natural == "true" else np.exp2(scores * np.log2(np.e) - lse)
    return exact


either = pytest.mark.parametrize("natural", ["true", "false"])


@either
def test_columns_are_weighed(natural: str, cache: BuildCache) -> None:
    """Queries from 8 on of those that have sums."""
    sums = sums_of(2)
    s, dp, p, ds = run(
        cache, f"weigh_columns<{natural}>(a, b, scores, reinterpret_cast<const float4*>(sums), 8, lane)", sums
    )
    expected = weights(s, sums[8 : 8 + COLS, 0], natural)
    assert (p[:, 12] == 0).all()
    np.testing.assert_allclose(p, expected, rtol=1e-5)
    np.testing.assert_allclose(ds, expected * (dp - sums[8 : 8 + COLS, 1]), rtol=1e-5, atol=1e-6)
    _, _, again, unchanged = run(
        cache, f"weigh_columns<{natural}>(a, scores, reinterpret_cast<const float4*>(sums), 8, lane)", sums
    )
    np.testing.assert_array_equal(again, p)
    np.testing.assert_array_equal(unchanged, dp)


@either
def test_rows_are_weighed(natural: str, cache: BuildCache) -> None:
    sums = sums_of(3)
    s, dp, unchanged, ds = run(cache, f"weigh_rows<{natural}>(a, b, scores, rows)", sums)
    np.testing.assert_array_equal(unchanged, s)
    expected = weights(s, sums[:ROWS, :1], natural) * (dp - sums[:ROWS, 1:])
    assert (ds[20] == 0).all()
    np.testing.assert_allclose(ds, expected, rtol=1e-5, atol=1e-6)
