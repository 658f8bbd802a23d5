"""Vectors of elements, with and without the hint that they are not used again."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

CTYPES = {"__half": np.dtype(np.float16), "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16), "float": np.dtype(np.float32)}


@pytest.mark.parametrize("ctype", CTYPES)
def test_conversions_round_to_nearest_even(ctype: str, cache: BuildCache) -> None:
    """Loads and stores of vectors of every width, and of rows past the cache: all elements arrive, rounded once."""
    kernel = SmallKernel(
        """
        #include "common/tile/row_access.cuh"
        template <int N>
        __device__ void copy(const float* x, CTYPE* y, float* z, CTYPE* w)
        {
            float row[N];
            load(x + N * threadIdx.x, row);
            store(y + N * threadIdx.x, row);
            float back[N];
            load(y + N * threadIdx.x, back);
            for (int i = 0; i < N; ++i) z[N * threadIdx.x + i] = back[i];
            read_row<Access::STREAMING>(y + N * threadIdx.x, back);
            write_row<Access::STREAMING>(w + N * threadIdx.x, back);
        }
        extern "C" __global__ void test(const float* x, CTYPE* y, float* z, CTYPE* w)
        {
            copy<8>(x, y, z, w);
            copy<4>(x + 256, y + 256, z + 256, w + 256);
            copy<1>(x + 384, y + 384, z + 384, w + 384);
        }
        """.replace("CTYPE", ctype),
        cache,
    )
    dtype = CTYPES[ctype]
    x = (np.random.default_rng(4).standard_normal(416) * 100).astype(np.float32)
    x[:6] = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, -0.0]
    x[6:8] = [np.nan, -np.inf]
    zeros = np.zeros(416, dtype)
    got = kernel(x=x, y=zeros, z=np.zeros(416, np.float32), w=zeros)
    with np.errstate(over="ignore"):
        expected = x.astype(dtype)
    for name in ("y", "w"):
        np.testing.assert_array_equal(values(got[name]), values(expected), name)
    np.testing.assert_array_equal(got["z"], expected.astype(np.float32))
    assert np.signbit(got["z"][5])


def values(array: NDArray[Any]) -> NDArray[np.float64]:
    return array.astype(np.float64)
