"""Rows computed again as they are defined, where a fast kernel left NaN or infinity; nothing else is touched."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

T, T_KV, HS = 5, 7, 40

KERNEL = """
#include "common/attention/exact.cuh"
extern "C" __global__ void test(const float* q, const float* k, const float* v, const float* dout, float* out,
                                float* lse, float* dq, float* dk, float* dv)
{
    const auto view = [](float* data, int rows) {
        return View<float, 4>{data, {0, rows * 40, 40, 1}};
    };
    const auto reading = [](const float* data, int rows) {
        return View<const float, 4>{data, {0, rows * 40, 40, 1}};
    };
    const Scores<true> scores(5, 7, 0.25f);
    const auto queries = reading(q, 5), keys = reading(k, 7), values = reading(v, 7), douts = reading(dout, 5);
    const ExactForward<40, true, float> forward = {queries, keys, values, 2, 2, scores};
    for (int h = 0; h < 2; ++h)
        for (int t = 0; t < 5; ++t) forward.mend(view(out, 5), lse, 0, h, t);
    __syncwarp();
    const ExactGradients<40, true, float> backward = {queries, keys, values, reading(out, 5), douts, lse, 2, 2, scores};
    for (int h = 0; h < 2; ++h)
        for (int t = 0; t < 5; ++t) backward.mend_query(view(dq, 5), 0, h, t);
    for (int key = 0; key < 7; ++key) {
        backward.mend_key<true>(view(dk, 7), 0, 0, key);
        backward.mend_key<false>(view(dv, 7), 0, 0, key);
    }
}
"""


def definition(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], dout: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Two query heads that share a key head, in float64."""
    s = 0.25 * np.einsum("htd,kd->htk", q, k)
    s[:, np.arange(T)[:, None] + T_KV - T < np.arange(T_KV)] = -np.inf
    lse = np.log(np.exp(s).sum(axis=2))
    p = np.exp(s - lse[..., None])
    out = p @ v
    ds = p * (dout @ v.T - (dout * out).sum(axis=2, keepdims=True))
    return {
        "out": out,
        "lse": lse,
        "dq": 0.25 * ds @ k,
        "dk": 0.25 * np.einsum("htk,htd->kd", ds, q),
        "dv": np.einsum("htk,htd->kd", p, dout),
    }


def test_rows_that_are_not_finite_are_mended(cache: BuildCache) -> None:
    rng = np.random.default_rng(1)
    q, dout = (rng.standard_normal((2, T, HS)).astype(np.float32) for _ in range(2))
    k, v = (rng.standard_normal((T_KV, HS)).astype(np.float32) for _ in range(2))
    want = definition(*(x.astype(np.float64) for x in (q, k, v, dout)))
    given = {name: np.full(x.shape, 9, np.float32) for name, x in want.items()}
    given["out"][0], given["out"][1, :, 3] = np.nan, np.inf
    given["dq"][1, 2, 39], given["dk"][4, 0], given["dv"][6, 17] = np.nan, -np.inf, np.nan
    got = SmallKernel(KERNEL, cache)(q=q, k=k, v=v, dout=dout, **given)
    for name in ("out", "lse"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6, err_msg=name)
    for name, row in (("dq", (1, 2)), ("dk", (4,)), ("dv", (6,))):
        np.testing.assert_allclose(got[name][row], want[name][row], rtol=1e-5, atol=2e-6, err_msg=name)
        others = np.ones(got[name].shape[:-1], bool)
        others[row] = False
        assert (got[name][others] == 9).all(), name


def test_log_sums_that_are_not_to_be_trusted(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/attention/exact.cuh"
        extern "C" __global__ void test(const float* x, float* y)
        {
            y[threadIdx.x] = trusted_log_sum(x[threadIdx.x], 1024.0f);
        }
        """,
        cache,
    )
    limit = 1024 * np.log(2)
    x = np.array([0, limit - 1, 1 - limit, limit + 1, -limit - 1, -np.inf, np.inf, np.nan] * 4, np.float32)
    y = kernel(x=x, y=np.zeros(32, np.float32))["y"][:8]
    np.testing.assert_array_equal(y, [*x[:3], np.nan, np.nan, np.inf, np.inf, np.nan])
