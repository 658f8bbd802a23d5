"""How blocks that have the same keys share out the tiles of queries."""

from itertools import product

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

N, M = 32, 16
KERNEL = """
#include "common/attention/key_share.cuh"
extern "C" __global__ void test(const int* sizes, int* tiles, int* steps, int* nothing)
{
    const KeyShare<32, 16, CAUSAL, 5> block(
        {Scores<CAUSAL>(sizes[0], sizes[1], 1.0f), 6, 2, {3, sizes[2]}, (sizes[1] + 31) / 32}, sizes[3]);
    nothing[0] = block.has_nothing();
    int n = 0;
    block.for_each_tile([&](int head, int tile) { tiles[n++] = 100 * head + tile; });
    if (block.has_nothing()) return;  // as kernels do
    n = 0;
    block.for_each_step([&](int head, int tile, auto masked, auto first) {
        steps[n++] = 10000 * first + 1000 * masked + 100 * head + tile;
    });
}
"""


@pytest.mark.parametrize("causal", [True, False])
def test_shares_of_the_tiles(causal: bool, cache: BuildCache) -> None:
    """Together all tiles, in order; none has two more than another. Each masks what a whole would."""
    kernel = SmallKernel(KERNEL.replace("CAUSAL", str(causal).lower()), cache, threads=1)
    for T, T_kv, at in ((100, 100, 1), (16, 90, 0), (90, 33, 1), (1, 70, 2), (48, 64, 0)):
        empty = np.full(64, -1, np.int32)
        found, lengths = [], []
        for share in range(5):
            sizes = np.array([T, T_kv, at, share], np.int32)
            got = kernel(sizes=sizes, tiles=empty, steps=empty, nothing=np.zeros(1, np.int32))
            tiles = [x for x in got["tiles"].tolist() if x >= 0]
            steps = [x for x in got["steps"].tolist() if x >= 0]
            assert got["nothing"][0] == (not tiles)
            lengths.append(len(tiles))
            if tiles:  # a block that has nothing ends before its steps
                assert [x % 1000 for x in steps] == tiles
                assert [x // 10000 for x in steps] == [1] + [0] * (len(steps) - 1)
                found += steps
        first = max(0, at * N - (T_kv - T)) // M if causal else 0
        order = [100 * head + tile for head, tile in product(range(3), range(first, -(-T // M)))]
        assert [x % 1000 for x in found] == order
        assert max(lengths) - min(lengths) <= 1
        sees = np.arange(T_kv) <= np.arange(T)[:, None] + T_kv - T if causal else np.ones((T, T_kv), bool)
        for x in found:
            rows, keys = slice(x % 100 * M, (x % 100 + 1) * M), slice(at * N, (at + 1) * N)
            hidden = at * N + N > T_kv or not sees[rows, keys].all()
            assert x // 1000 % 10 or not hidden, (T, T_kv, at, x)
