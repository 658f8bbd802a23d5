"""Steps of a block: each once and in order, the right ones masked, in one loop or in two."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("peel", ["true", "false"])
@pytest.mark.parametrize("masked_first", ["true", "false"])
@pytest.mark.parametrize(("count", "first"), [(7, 3), (5, 0), (4, 4), (0, 0)])
def test_every_step_once(peel: str, masked_first: str, count: int, first: int, cache: BuildCache) -> None:
    kernel = SmallKernel(
        f"""
        #include "common/attention/steps.cuh"
        extern "C" __global__ void test(int* order, int* masks, int* number)
        {{
            if (threadIdx.x != 0) return;
            const auto step = [&](int more, int i, auto masked) {{
                order[*number] = more + i;
                masks[(*number)++] = masked ? 1 : 0;
            }};
            for_each_step<{peel}, {masked_first}>({count}, {first}, step, 100);
        }}
        """,
        cache,
    )
    got = kernel(order=np.full(8, -1, np.int32), masks=np.full(8, -1, np.int32), number=np.zeros(1, np.int32))
    assert got["number"][0] == count
    np.testing.assert_array_equal(got["order"][:count], 100 + np.arange(count))
    expected = (np.arange(count) < first) == (masked_first == "true")
    np.testing.assert_array_equal(got["masks"][:count], expected)
