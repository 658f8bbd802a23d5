"""The producer of blocks that keep keys: every tile arrives, in order, with what is known of its queries."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.plan import TensorMapArg
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/key_producer.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/shared_vectors.cuh"
using Keys = SlabTile<16, 16>;
using Queries = SlabTile<32, 16>;
struct Shared {
    SharedAddress k, v, q, dout, origins, deltas;
    RingBarriers<1> keys, values;
    RingBarriers<2> queries;
    RingBarriers<1> douts;
};
extern __shared__ __align__(1024) unsigned char smem[];
extern "C" __global__ void __launch_bounds__(64)
test(const __half*, const __half*, const __half*, const __half*, const float* origins, const float* deltas, float* out,
     int* begun, const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
     const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap dout_map)
{
    const SharedAddress start = shared_address(smem);
    const Shared shared = {start, start + 512, start + 1024, start + 3072, start + 4096, start + 4352,
                           {start + 4480}, {start + 4496}, {start + 4512}, {start + 4544}};
    const KeyBlock<16, 32, false, false> block(Scores<false>(64, 16, 1.0f), 2, 1, Work{0, 0}, 1);
    if (threadIdx.x == 0) {
        shared.keys.init(1);
        shared.values.init(1);
        shared.queries.init(1);
        shared.douts.init(1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        produce_tiles<Keys, Keys, Queries, Queries, 2, 1, OVERLAP, FEW>(
            shared, block, q_map, k_map, v_map, dout_map, origins, deltas, [&] { begun[0] += 1; });
    if (threadIdx.x < 32) return;
    const int lane = threadIdx.x - 32;
    const auto at = [&](int tile, int row) {
        return __half2float(*reinterpret_cast<const __half*>(smem + tile + Keys::offset(row, 0)));
    };
    shared.keys.wait_full(RingPlace<1>());
    shared.values.wait_full(RingPlace<1>());
    if (lane < 16) {
        out[lane] = at(0, lane);
        out[16 + lane] = at(512, lane);
    }
    RingPlace<2> q;
    RingPlace<1> d;
    for (int i = 0; i < 4; ++i) {
        float* const own = out + 32 + 128 * i;
        shared.queries.wait_full(q);
        own[lane] = at(1024 + q.stage * 1024, lane);
        own[32 + lane] = __uint_as_float(load_shared_word(shared.origins + q.stage * 128 + lane * 4));
        shared.queries.release(q);
        q.advance();
        shared.douts.wait_full(d);
        own[64 + lane] = at(3072, lane);
        own[96 + lane] = __uint_as_float(load_shared_word(shared.deltas + lane * 4));
        shared.douts.release(d);
        d.advance();
    }
}
"""


@pytest.mark.parametrize(("overlap", "few"), [("false", "false"), ("true", "true")])
def test_every_tile_arrives(overlap: str, few: str, cache: BuildCache) -> None:
    """Two heads of two tiles on one key head."""
    random = np.random.default_rng(0)
    q, dout = random.standard_normal((2, 2, 64, 16)).astype(np.float16)
    k, v = random.standard_normal((2, 16, 16)).astype(np.float16)
    origins, deltas = random.standard_normal((2, 2, 64)).astype(np.float32)

    def tensor_map(name: str, heads: int, rows: int, box: int) -> TensorMapArg:
        shape, strides = (16, rows, heads, 1), (1, 16, 16 * rows, 16 * rows * heads)
        return TensorMapArg(f"{name}_map", name, 0, "fp16", shape, strides, (16, box, 1, 1), 32, "output")

    maps = (
        tensor_map("q", 2, 64, 32),
        tensor_map("k", 1, 16, 16),
        tensor_map("v", 1, 16, 16),
        tensor_map("dout", 2, 64, 32),
    )
    text = KERNEL.replace("OVERLAP", overlap).replace("FEW", few)
    got = SmallKernel(text, cache, threads=64, smem=4608, maps=maps)(
        q=q, k=k, v=v, dout=dout, origins=origins, deltas=deltas,
        out=np.zeros(32 + 4 * 128, np.float32), begun=np.zeros(1, np.int32),
    )  # fmt: skip
    tiles = [
        np.concatenate([q[h, r, 0], origins[h, r], dout[h, r, 0], deltas[h, r]])
        for h in range(2)
        for r in (slice(32), slice(32, 64))
    ]
    np.testing.assert_array_equal(got["out"], np.concatenate([k[:, 0], v[:, 0], *tiles]))
    assert got["begun"][0] == 1
