"""Additions of two or four neighbouring floats at once: all that several lanes add arrives, in its own place."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize(
    ("n", "add"),
    [
        (2, "add_vector(to, part)"),
        (4, "add_vector(to, part)"),
        (4, "add_four(reinterpret_cast<float4*>(to), part[0], part[1], part[2], part[3])"),
    ],
)
def test_lanes_add_to_the_same_vectors(n: int, add: str, cache: BuildCache) -> None:
    """Four lanes a vector; floats beside them stay."""
    kernel = SmallKernel(
        """
        #include "common/ptx/vector_add.cuh"
        extern "C" __global__ void test(const float* x, float* sums)
        {
            float part[COUNT];
            for (int e = 0; e < COUNT; ++e) part[e] = x[COUNT * threadIdx.x + e];
            float* const to = sums + 2 * COUNT * (threadIdx.x % 8);
            ADD;
        }
        """.replace("COUNT", str(n)).replace("ADD", add),
        cache,
    )
    x = np.random.default_rng(n).integers(-99, 100, (4, 8, n)).astype(np.float32)
    got = kernel(x=x, sums=np.full((8, 2, n), 0.5, np.float32))["sums"]
    np.testing.assert_array_equal(got[:, 0], x.sum(axis=0) + 0.5)
    assert (got[:, 1] == 0.5).all()
