"""Additions to rows that several threads add to."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_all_additions_arrive(n: int, step: int, cache: BuildCache) -> None:
    """Four lanes add to each N neighbours, by vectors where they lie side by side; nothing between them is touched."""
    kernel = SmallKernel(
        """
        #include "common/attention/add_to_row.cuh"
        extern "C" __global__ void test(const float* x, float* row)
        {
            float part[COUNT];
            for (int e = 0; e < COUNT; ++e) part[e] = x[COUNT * threadIdx.x + e];
            add_to_row(row, STEP, COUNT * (threadIdx.x % 8), part, STEP == 1);
        }
        """.replace("STEP", str(step)).replace("COUNT", str(n)),
        cache,
    )
    x = np.random.default_rng(1).integers(-99, 100, (4, 8 * n)).astype(np.float32)
    before = np.full((8 * n, step), 0.5, np.float32)
    got = kernel(x=x, row=before)["row"]
    np.testing.assert_array_equal(got[:, 0], x.sum(axis=0) + 0.5)
    assert (got[:, 1:] == 0.5).all()
