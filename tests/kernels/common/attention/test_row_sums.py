"""What the forward pass left of a query, two floats side by side: two queries are one copy of 16 bytes."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_row_sums_lie_side_by_side(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/attention/row_sums.cuh"
        extern "C" __global__ void test(const float* x, float* lse, float* delta, int* size)
        {
            const RowSums row = reinterpret_cast<const RowSums*>(x)[threadIdx.x];
            lse[threadIdx.x] = row.lse;
            delta[threadIdx.x] = row.delta;
            *size = 100 * sizeof(RowSums) + alignof(RowSums);
        }
        """,
        cache,
    )
    x, empty = np.arange(64, dtype=np.float32).reshape(32, 2), np.zeros(32, np.float32)
    got = kernel(x=x, lse=empty, delta=empty, size=np.zeros(1, np.int32))
    np.testing.assert_array_equal(got["lse"], x[:, 0])
    np.testing.assert_array_equal(got["delta"], x[:, 1])
    assert got["size"][0] == 808
