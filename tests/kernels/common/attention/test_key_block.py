"""Which tiles of queries a block of keys visits, in which order, and which of them it masks."""

from itertools import product

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

N, M = 32, 16
KERNEL = """
#include "common/attention/key_block.cuh"
extern "C" __global__ void test(const int* sizes, int* tiles, int* steps, int* numbers, int* sharers)
{
    const int T = sizes[0], T_kv = sizes[1], at = sizes[2];
    const KeyBlock<32, 16, CAUSAL, STAGGER> block(Scores<CAUSAL>(T, T_kv, 1.0f), 6, 2, {3, at}, (T_kv + 31) / 32);
    for (int tile = 0; tile < (T + 15) / 16; ++tile) sharers[tile] = block.sharers(tile, (T_kv + 31) / 32);
    int n = 0;
    block.for_each_tile([&](int head, int tile) {
        numbers[n] = static_cast<int>(block.number(head, tile));
        tiles[n++] = 100 * head + tile;
    });
    n = 0;
    block.for_each_step([&](int head, int tile, auto masked, auto first) {
        steps[n++] = 10000 * first + 1000 * masked + 100 * head + tile;
    });
}
"""


@pytest.mark.parametrize(("causal", "stagger"), [(True, False), (False, False), (False, True)])
def test_every_tile_that_sees_a_key_once(causal: bool, stagger: bool, cache: BuildCache) -> None:
    text = KERNEL.replace("CAUSAL", str(causal).lower()).replace("STAGGER", str(stagger).lower())
    kernel = SmallKernel(text, cache, threads=1)
    for T, T_kv in ((100, 100), (33, 90), (90, 33), (1, 70), (48, 64)):
        for at in range(-(-T_kv // N)):
            sizes = np.array([T, T_kv, at], np.int32)
            empty = np.full(64, -1, np.int32)
            got = kernel(sizes=sizes, tiles=empty, steps=empty, numbers=empty, sharers=empty)
            tiles, key = -(-T // M), at * N
            sees = np.arange(T_kv) <= np.arange(T)[:, None] + T_kv - T if causal else np.ones((T, T_kv), bool)
            rows = [slice(M * i, M * (i + 1)) for i in range(tiles)]
            wanted = {i for i in range(tiles) if sees[rows[i], key : key + N].any()}
            shared = [sum(sees[rows[i], j : j + N].any() for j in range(0, T_kv, N)) for i in range(tiles)]
            assert got["sharers"].tolist()[:tiles] == shared
            order = [(at * tiles // -(-T_kv // N) + i) % tiles for i in range(tiles)] if stagger else sorted(wanted)
            assert set(order) == wanted
            expected = [100 * head + tile for head, tile in product(range(3), order)]
            assert [x for x in got["tiles"].tolist() if x >= 0] == expected
            # (batch 1, key head 1) of two key heads that three heads share each
            assert [x for x in got["numbers"].tolist() if x >= 0] == [
                (6 + 3 + head) * tiles + tile for head, tile in product(range(3), order)
            ]
            steps = [x for x in got["steps"].tolist() if x >= 0]
            assert [x % 1000 for x in steps] == expected
            assert [x // 10000 for x in steps] == [1] + [0] * (len(steps) - 1)
            cut = key + N > T_kv
            for x in steps:
                hidden = cut or not sees[rows[x % 100], key : key + N].all()
                assert x // 1000 % 10 or not hidden, (T, T_kv, at, x)
            if not causal and not cut:
                assert all(x // 1000 % 10 == 0 for x in steps[1:])
