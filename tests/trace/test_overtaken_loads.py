"""An arrival at an mbarrier does not wait for loads that its warp has under way: what they need must come before it.

Seen on an H200: `flash_wgmma`'s gradients released a stage right behind the loads of its last deltas, and TMA had the
next tile's in their place before they were read.
"""

import numpy as np
import pytest

from autotune.trace.observed import FindingKind, Trace
from tests.trace.tracing import line_of, trace

OVER: FindingKind = "overwritten while being read"
TILES, WORDS = 4, 64

STREAM = f"""
#include "common/attention/ring.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/shared_vectors.cuh"
#include "common/ptx/tensor_copy.cuh"

/// Sums of TILES tiles of WORDS floats, by two warps; another one's first thread loads them.
extern "C" __global__ void test(const float* tiles, float* sums)
{{
    extern __shared__ __align__(1024) unsigned char memory[];
    const SharedAddress tile = shared_address(memory), kept = tile + {4 * WORDS};
    const RingBarriers<1> ring{{kept + {4 * WORDS}}};
    RingPlace<1> at;
    if (threadIdx.x == 0) {{
        ring.init(2);
        fence_mbarrier_init();
    }}
    __syncthreads();
    if (threadIdx.x == 64)
        for (int i = 0; i < {TILES}; ++i, at.advance()) {{
            ring.begin_fill(at, {4 * WORDS});
            bulk_load(tile, tiles + i * {WORDS}, {4 * WORDS}, ring.full(at));  // load
        }}
    if (threadIdx.x >= 64) return;
    float sum = 0.0f;
    for (int i = 0; i < {TILES}; ++i, at.advance()) {{
        ring.wait_full(at);
        const uint32_t x = load_shared_word(tile + 4 * threadIdx.x);  // read
        BEFORE
        ring.release(at);
        sum += __uint_as_float(x);
    }}
    sums[threadIdx.x] = sum;
}}
"""

NEEDED = {
    "stored in shared memory": f"store_shared_word(tile + {4 * WORDS} + 4 * threadIdx.x, x);",
    "stored in device memory": "sums[threadIdx.x] = __uint_as_float(x);",
    "shuffled": "sum += 0.0f * __shfl_sync(0xffffffffu, __uint_as_float(x), 0);",
    "behind a proxy fence": "fence_async_shared();",
}
NOT_NEEDED = {
    "nothing": "",
    "a barrier of the warp": "__syncwarp();",
    "arithmetic, which may come later": "sum += 0.5f * __uint_as_float(x);",
}


def traced(before: str) -> Trace:
    tiles = np.arange(TILES * WORDS, dtype=np.float32)
    sums = np.zeros(WORDS, np.float32)
    code = STREAM.replace("BEFORE", before)
    return trace(code, "test", {"tiles": tiles}, {"sums": sums}, block=(96, 1, 1), smem=8 * WORDS + 16)


@pytest.mark.parametrize("before", NEEDED.values(), ids=NEEDED)
def test_a_load_that_something_needs_has_ended(before: str) -> None:
    result = traced(before)
    assert result.complete
    assert not result.findings, [(f.kind, f.detail) for f in result.findings]


@pytest.mark.parametrize("before", NOT_NEEDED.values(), ids=NOT_NEEDED)
def test_an_arrival_behind_a_load_alone_is_found(before: str) -> None:
    result = traced(before)
    assert [f.kind for f in result.findings] == [OVER]
    found = result.findings[0]
    assert found.place.line == line_of(STREAM, "load")
    assert found.other is not None
    assert found.other.place.line == line_of(STREAM, "read")
    assert found.other.access == "read"
