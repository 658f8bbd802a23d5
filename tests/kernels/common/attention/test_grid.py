"""Which blocks of a grid work on which head."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("heads_at_once", [0, 4])
def test_every_block_of_every_head_once(heads_at_once: int, cache: BuildCache) -> None:
    """2 batches of 3 heads of 5 blocks; in a last group that is not full, batches beyond the last one appear."""
    kernel = SmallKernel(
        """
        #include "common/attention/grid.cuh"
        extern "C" __global__ void test(int* seen)
        {
            const auto place = BlockPlace<HEADS_AT_ONCE>::of_block(3);
            if (threadIdx.x == 0) atomicAdd(seen + (place.batch * 3 + place.head) * 5 + place.block, 1);
        }
        """.replace("HEADS_AT_ONCE", str(heads_at_once)),
        cache,
        blocks=(4, 5, 2) if heads_at_once else (6, 5, 1),
    )
    seen = kernel(seen=np.zeros((3, 3, 5), np.int32))["seen"]
    assert (seen[:2] == 1).all()
    np.testing.assert_array_equal(seen[2, :, 0], [1, 1, 0] if heads_at_once else [0, 0, 0])


@pytest.mark.parametrize(("blocks_first", "heads_at_once"), [(True, 0), (False, 0), (False, 2)])
@pytest.mark.parametrize("split", [1, 3])
def test_every_split_of_every_block_once(blocks_first: bool, heads_at_once: int, split: int, cache: BuildCache) -> None:
    """2 batches of 3 heads of 4 blocks; computed anew it is the same, and the first block is a head's last."""
    along = 4 * split
    kernel = SmallKernel(
        """
        #include "common/attention/grid.cuh"
        extern "C" __global__ void test(int* seen, int* first)
        {
            using Place = SplitPlace<BLOCKS_FIRST, HEADS_AT_ONCE, true, SPLIT>;
            const auto place = Place::of_block<false>(3), again = Place::of_block<true>(3);
            if (threadIdx.x != 0) return;
            const bool same = place.batch == again.batch && place.head == again.head && place.block == again.block;
            atomicAdd(seen + ((place.batch * 3 + again.head) * 4 + place.block) * SPLIT + again.split, same ? 1 : 100);
            if ((BLOCKS_FIRST ? blockIdx.x : blockIdx.y) == 0) *first = place.block;
        }
        """.replace("BLOCKS_FIRST", str(blocks_first).lower())
        .replace("HEADS_AT_ONCE", str(heads_at_once))
        .replace("SPLIT", str(split)),
        cache,
        blocks=(along, 3, 2) if blocks_first else (heads_at_once or 6, along, 6 // (heads_at_once or 6)),
    )
    got = kernel(seen=np.zeros((6, 4, split), np.int32), first=np.full(1, -1, np.int32))
    assert (got["seen"] == 1).all()
    assert got["first"][0] == 3
