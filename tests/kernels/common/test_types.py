"""Conversions, and pairs and vectors of elements."""

import numpy as np

from autotune.compilers.cache import BuildCache
from autotune.core.dtypes import epsilon
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.fragments import (
    CTYPES,
    NAMES,
    each_ctype,
)


@each_ctype
def test_pack_rounds_to_nearest_even(ctype: str, cache: BuildCache) -> None:
    dtype = CTYPES[ctype]
    step = epsilon(NAMES[ctype])
    values = [1 + step / 2, 1 + 1.5 * step, -1 - 0.51 * step, 3.4e38, 6e-8, -0.0, np.inf, np.nan]
    kernel = SmallKernel(
        """
        #include "common/types.cuh"
        extern "C" __global__ void test(const float* x, unsigned* y)
        {
            if (threadIdx.x < 4) y[threadIdx.x] = pack<CTYPE>(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
        }
        """.replace("CTYPE", ctype),
        cache,
    )
    x = np.array(values, np.float32)
    got = kernel(x=x, y=np.zeros(4, np.int32))["y"].view(dtype)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got.astype(np.float64), x.astype(dtype).astype(np.float64))
    assert np.signbit(got.astype(np.float64))[5]


@each_ctype
def test_vectors_of_elements(ctype: str, cache: BuildCache) -> None:
    """Loads and stores of every width, pairs and halves of them: all elements arrive, rounded once."""
    kernel = SmallKernel(
        """
        #include "common/types.cuh"
        template <int N>
        __device__ void copy(const float* x, CTYPE* y, float* z)
        {
            float row[N];
            load(x + N * threadIdx.x, row);
            store(y + N * threadIdx.x, row);
            load(y + N * threadIdx.x, row);
            for (int i = 0; i < N; ++i) z[N * threadIdx.x + i] = row[i];
        }
        extern "C" __global__ void test(const float* x, CTYPE* y, float* z, float* halves)
        {
            copy<8>(x, y, z);
            copy<4>(x + 256, y + 256, z + 256);
            copy<1>(x + 384, y + 384, z + 384);
            const uint32_t both = pack<CTYPE>(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
            const float2 two = unpack_pair<CTYPE>(both);
            halves[4 * threadIdx.x] = two.x;
            halves[4 * threadIdx.x + 1] = two.y;
            halves[4 * threadIdx.x + 2] = to_float(half_of<CTYPE>(both, 0));
            halves[4 * threadIdx.x + 3] = to_float(half_of<CTYPE>(both, 1));
        }
        """.replace("CTYPE", ctype),
        cache,
    )
    x = (np.random.default_rng(4).standard_normal(416) * 100).astype(np.float32)
    rounded = x.astype(CTYPES[ctype])
    got = kernel(x=x, y=np.zeros_like(rounded), z=np.zeros_like(x), halves=np.zeros((32, 4), np.float32))
    np.testing.assert_array_equal(got["y"].astype(np.float64), rounded.astype(np.float64))
    np.testing.assert_array_equal(got["z"], rounded.astype(np.float32))
    pairs_of = rounded[:64].astype(np.float32).reshape(32, 2)
    np.testing.assert_array_equal(got["halves"], np.concatenate([pairs_of, pairs_of], axis=1))


def test_what_is_finite(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/types.cuh"
        extern "C" __global__ void test(const float* x, int* finite, int* widths)
        {
            finite[threadIdx.x] = is_finite(x[threadIdx.x]);
            widths[threadIdx.x] = float_width(threadIdx.x + 1);
        }
        """,
        cache,
    )
    x = np.array([0, -0.0, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan, 1e-45] * 4, np.float32)
    got = kernel(x=x, finite=np.zeros(32, np.int32), widths=np.zeros(32, np.int32))
    np.testing.assert_array_equal(got["finite"], np.isfinite(x))
    np.testing.assert_array_equal(got["widths"], [np.gcd(n, 4) for n in range(1, 33)])
