"""All of it together: a warp-specialised product with a ring of stages, by TMA and wgmma."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common import pipelined


@pytest.mark.parametrize(("rows", "depth"), [(128, 64), (128, 448), (128, 1000), (72, 200)])
def test_a_pipelined_product(rows: int, depth: int, cache: BuildCache) -> None:
    """Fewer steps than stages, more, a depth that no step divides, rows that fill no tile."""
    kernel = SmallKernel(
        pipelined.CODE, cache, threads=pipelined.THREADS, smem=pipelined.SMEM, maps=pipelined.maps(rows, depth)
    )
    given = pipelined.operands(rows, depth)
    wanted = given["a"].astype(np.float64) @ given["b"].astype(np.float64).T
    np.testing.assert_allclose(kernel(**given)["c"], wanted, rtol=1e-5, atol=1e-4)
