"""Parts of O that blocks with different keys have computed, made into one."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/combine.cuh"
extern "C" __global__ void test(const float* parts, const float* part_lse, __half* out, float* lse, int* finite)
{
    const View<__half, 4> view = {out, {0, 0, 64 * 2, 2}};
    const int t = blockIdx.x;
    const bool mine = combine_parts<64, 4, 2>(parts + t * 4 * 64, part_lse + t * 4, view, lse + t, 0, 0, t);
    finite[t * 32 + threadIdx.y * 16 + threadIdx.x] = mine;
}
"""


def test_parts_are_weighted_by_their_sums(cache: BuildCache) -> None:
    """A part without keys counts nothing, whatever lies there; a row without any is 0; large scores and NaN say so."""
    rng = np.random.default_rng(1)
    parts = rng.standard_normal((6, 4, 64)).astype(np.float32)
    part_lse = rng.uniform(-5, 5, (6, 4)).astype(np.float32)
    parts[1, 2], part_lse[1, 2] = np.nan, -np.inf
    parts[2], part_lse[2] = np.nan, -np.inf
    part_lse[3] = 3e6
    parts[4, 0, 10] = np.inf
    part_lse[5, 1] = np.nan
    got = SmallKernel(KERNEL, cache, threads=(16, 2, 1), blocks=(6, 1, 1))(
        parts=parts, part_lse=part_lse, out=np.full((6, 64, 2), -7, np.float16), lse=np.zeros(6, np.float32),
        finite=np.zeros((6, 32), np.int32),
    )  # fmt: skip
    for row in (0, 1):
        weights = np.exp(part_lse[row].astype(np.float64))
        keys = np.isfinite(part_lse[row])
        mean = weights[keys] @ parts[row, keys] / weights.sum()
        np.testing.assert_allclose(got["out"][row, :, 0], mean, rtol=0, atol=2e-3)
        assert got["lse"][row] == pytest.approx(np.log(weights.sum()), abs=1e-5)
    np.testing.assert_array_equal(got["out"][2, :, 0], 0)
    assert got["lse"][2] == -np.inf
    assert np.isnan(got["out"][3, :, 0]).all()
    assert not np.isfinite(got["out"][4, 10, 0])
    assert (got["out"][..., 1] == -7).all()
    np.testing.assert_array_equal(got["finite"].all(axis=1), [True, True, True, False, False, False])
    assert not got["finite"][[3, 5]].any()
    assert got["finite"][4].sum() == 31  # column 10 is one thread's


PART = """
#include "common/attention/combine.cuh"
extern "C" __global__ void test(const int* sees_keys, const float* sum, const float* log_sum, float* out)
{
    out[threadIdx.x] = part_log_sum(sees_keys[threadIdx.x] != 0, sum[threadIdx.x], log_sum[threadIdx.x]);
}
"""


def test_a_part_without_weight_is_not_one_without_keys(cache: BuildCache) -> None:
    """Keys with weight; without; no keys, whatever was summed."""
    infinite = np.float32(-np.inf)
    got = SmallKernel(PART, cache, threads=(4, 1, 1))(
        sees_keys=np.array([1, 1, 0, 0], np.int32), sum=np.array([2, 0, 0, 2], np.float32),
        log_sum=np.array([0.5, infinite, infinite, 0.5], np.float32), out=np.zeros(4, np.float32),
    )  # fmt: skip
    np.testing.assert_array_equal(got["out"], [0.5, np.nan, -np.inf, -np.inf])


AGAIN = """
#include "common/attention/combine.cuh"
extern "C" __global__ void test(const float* parts, const float* part_lse, __half* q, __half* k, __half* v, __half* out,
                                float* lse)
{
    const View<__half, 4> own = {out, {0, 3 * 6, 6, 1}};
    const ExactForward<8, false, __half, 6> exact = {
        {q, {0, 24, 8, 1}}, {k, {0, 16, 8, 1}}, {v, {0, 12, 6, 1}}, 2, 1, {3, 2, 1.0f}};
    combine_splits_of_row<2, 16>(parts, part_lse, own, lse, exact);
}
"""


def test_a_row_of_parts_that_are_not_finite_is_computed_again(cache: BuildCache) -> None:
    """Two heads of three queries with six columns of V; a row's place is its block's. The last row alone has NaN."""
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 3, 8), (2, 2, 8), (2, 2, 6)))
    parts = np.full((6, 2, 8), 7, np.float32)
    parts[np.arange(6), 0] = np.arange(6)[:, None]
    part_lse = np.tile(np.array([3, -np.inf], np.float32), (6, 1))
    part_lse[5, 1] = np.nan
    got = SmallKernel(AGAIN, cache, threads=(2, 16, 1), blocks=(6, 1, 1))(
        parts=parts, part_lse=part_lse, q=q, k=k, v=v, out=np.zeros((6, 6), np.float16), lse=np.zeros(6, np.float32)
    )
    np.testing.assert_array_equal(got["out"][:5], np.repeat(np.arange(5)[:, None], 6, axis=1))
    np.testing.assert_allclose(got["lse"][:5], 3, rtol=1e-6)
    weights = np.exp(k[1].astype(np.float64) @ q[1, 2].astype(np.float64))
    np.testing.assert_allclose(got["out"][5], weights @ v[1] / weights.sum(), rtol=2e-3, atol=2e-3)
    assert got["lse"][5] == pytest.approx(np.log(weights.sum()), rel=1e-5)
