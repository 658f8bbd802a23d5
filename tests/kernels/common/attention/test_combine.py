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
    """A part without keys counts nothing, whatever lies there; a row without any is 0; too large scores say so."""
    rng = np.random.default_rng(1)
    parts = rng.standard_normal((5, 4, 64)).astype(np.float32)
    part_lse = rng.uniform(-5, 5, (5, 4)).astype(np.float32)
    parts[1, 2], part_lse[1, 2] = np.nan, -np.inf
    parts[2], part_lse[2] = np.nan, -np.inf
    part_lse[3] = 3e6
    parts[4, 0, 10] = np.inf
    got = SmallKernel(KERNEL, cache, threads=(16, 2, 1), blocks=(5, 1, 1))(
        parts=parts, part_lse=part_lse, out=np.full((5, 64, 2), -7, np.float16), lse=np.zeros(5, np.float32),
        finite=np.zeros((5, 32), np.int32),
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
    np.testing.assert_array_equal(got["finite"].all(axis=1), [True, True, True, False, False])
    assert not got["finite"][3].any()
    assert got["finite"][4].sum() == 31  # column 10 is one thread's
