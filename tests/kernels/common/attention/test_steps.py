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


@pytest.mark.parametrize("peel", ["true", "false"])
@pytest.mark.parametrize("reverse", ["true", "false"])
def test_every_tile_once(peel: str, reverse: str, cache: BuildCache) -> None:
    """From either end, those that begin before `masked_end` with a mask; none where nothing is between the ends."""
    bounds = [(32, 112, 60), (32, 112, 0), (32, 112, 200), (48, 48, 60), (0, 16, 16)]
    calls = "".join(
        f"for_each_tile<{peel}, {reverse}, 16>({reverse} ? {end} - 16 : {begin}, {begin}, {end}, {masked}, step, {i});"
        for i, (begin, end, masked) in enumerate(bounds)
    )
    kernel = SmallKernel(
        f"""
        #include "common/attention/steps.cuh"
        extern "C" __global__ void test(int* seen, int* number)
        {{
            if (threadIdx.x != 0) return;
            const auto step = [&](int call, int row, auto masked) {{
                seen[3 * *number] = call;
                seen[3 * *number + 1] = row;
                seen[3 * (*number)++ + 2] = masked ? 1 : 0;
            }};
            {calls}
        }}
        """,
        cache,
    )
    order = slice(None, None, -1 if reverse == "true" else 1)
    want = [
        (call, row, row < masked)
        for call, (begin, end, masked) in enumerate(bounds)
        for row in list(range(begin, end, 16))[order]
    ]
    got = kernel(seen=np.full((20, 3), -1, np.int32), number=np.zeros(1, np.int32))
    assert got["number"][0] == len(want)
    np.testing.assert_array_equal(got["seen"][: len(want)], want)
