"""The twin of mma on 16-bit operands, against NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.fragments import (
    CTYPES,
    a_fragments,
    b_fragments,
    d_fragments,
    each_ctype,
)

MMA = """
#include "common/ptx/mma.cuh"
extern "C" __global__ void test(const unsigned* a, const unsigned* b, float* d)
{
    const int at = threadIdx.x;
    const uint32_t a_registers[4] = {a[4 * at], a[4 * at + 1], a[4 * at + 2], a[4 * at + 3]};
    float d_registers[4];
    for (int i = 0; i < 4; ++i) d_registers[i] = d[4 * at + i];
    mma_16x8x16<CTYPE>(d_registers, a_registers, b[2 * at], b[2 * at + 1]);
    for (int i = 0; i < 4; ++i) d[4 * at + i] = d_registers[i];
}
"""


def multiply(ctype: str, cache: BuildCache, rng: np.random.Generator, scale: float) -> tuple[NDArray[Any], ...]:
    """Two warps' products by the twin, and what they are in float64."""
    a = (rng.standard_normal((2, 16, 16)) * scale).round(3).astype(CTYPES[ctype])
    b = (rng.standard_normal((2, 16, 8)) * scale).round(3).astype(CTYPES[ctype])
    c = (rng.standard_normal((2, 16, 8)) * scale).astype(np.float32)
    kernel = SmallKernel(MMA.replace("CTYPE", ctype), cache, threads=64)
    fragments = {"a": np.stack(list(map(a_fragments, a))), "b": np.stack(list(map(b_fragments, b)))}
    got = kernel(**fragments, d=np.stack(list(map(d_fragments, c))))["d"]
    exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    return got, np.stack(list(map(d_fragments, exact)))


@each_ctype
def test_mma_multiplies(ctype: str, cache: BuildCache) -> None:
    got, exact = multiply(ctype, cache, np.random.default_rng(1), 1.0)
    np.testing.assert_allclose(got, exact, rtol=0, atol=17 * 2.0**-24 * np.abs(exact).max() * 4)


@each_ctype
def test_mma_is_exact_where_fp32_is(ctype: str, cache: BuildCache) -> None:
    """Products of halves overflow their own type and keep all their bits in fp32."""
    a, b = np.full((16, 16), 256, CTYPES[ctype]), np.full((16, 8), 255, CTYPES[ctype])
    a[3], b[:, 5] = -1, 2.0**-7
    d = np.full((16, 8), 0.5, np.float32)
    kernel = SmallKernel(MMA.replace("CTYPE", ctype), cache, threads=64)
    fragments = {"a": np.stack([a_fragments(a)] * 2), "b": np.stack([b_fragments(b)] * 2)}
    got = kernel(**fragments, d=np.stack([d_fragments(d)] * 2))["d"]
    exact = d.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(got[0], d_fragments(exact))
    np.testing.assert_array_equal(got[1], got[0])


@each_ctype
def test_mma_passes_nan_and_infinity_on(ctype: str, cache: BuildCache) -> None:
    a, b = np.ones((16, 16), CTYPES[ctype]), np.ones((16, 8), CTYPES[ctype])
    a[2, 4], b[9, 6] = np.nan, np.inf
    kernel = SmallKernel(MMA.replace("CTYPE", ctype), cache, threads=64)
    fragments = {"a": np.stack([a_fragments(a)] * 2), "b": np.stack([b_fragments(b)] * 2)}
    got = kernel(**fragments, d=np.zeros((2, 32, 4), np.float32))["d"]
    exact = np.full((16, 8), 16.0)
    exact[:, 6], exact[2] = np.inf, np.nan
    np.testing.assert_array_equal(got[0], d_fragments(exact))
