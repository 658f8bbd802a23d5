"""Origins and deltas of queries: of those that exist, that see keys, and whose log-sum-exps can be trusted."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

HS, T, ROWS = 24, 6, 8
KERNEL = """
#include "common/attention/query_origins.cuh"
extern "C" __global__ void test(const __half* out, const __half* dout, const float* lse, float* origins, float* deltas,
                                int* numbers)
{
    const auto view = [](const __half* data) { return View<const __half, 4>{data, {0, 6 * PITCH, PITCH, 1}}; };
    numbers[threadIdx.x] = static_cast<int>(
        write_origin<24, 64, 4>(view(out), view(dout), lse, origins, deltas, 2, 8, Scores<true>(6, 5, 0.25f), 100.0f));
}
"""


@pytest.mark.parametrize("pitch", [24, 25])
def test_rows_of_one_block(pitch: int, cache: BuildCache) -> None:
    """16 rows of the first of two heads, by 4 threads each: 8 with those that fill the last tile, then none."""
    random = np.random.default_rng(1)
    out, dout = (random.standard_normal((2, T, pitch)).astype(np.float16) for _ in range(2))
    lse = random.standard_normal((2, T)).astype(np.float32)
    lse[0, 1], lse[0, 2] = -np.inf, 90.0  # without keys; 130 in base 2
    empty = np.full((2, ROWS), 7, np.float32)
    kernel = SmallKernel(KERNEL.replace("PITCH", str(pitch)), cache, threads=64)
    got = kernel(out=out, dout=dout, lse=lse, origins=empty, deltas=empty, numbers=np.zeros(64, np.int32))
    origins = np.concatenate([lse[0] / np.log(2), [np.inf, np.inf]])
    origins[1], origins[2] = np.inf, np.nan
    deltas = (out[0, :, :HS].astype(np.float64) * dout[0, :, :HS]).sum(-1)
    deltas[1] = 0
    np.testing.assert_allclose(got["origins"][0], origins, rtol=1e-6)
    np.testing.assert_allclose(got["deltas"][0], [*deltas, 0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(got["numbers"], np.where(np.arange(64) < 32, np.arange(64) // 4, -1))
    assert (got["origins"][1] == 7).all()
