"""Tiles of queries on their way to a block of keys: one query head after the other, forwards and backwards."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/query_stream.cuh"
using Tile = SharedTile<32, true>;
using Operands = GradientOperands<__half, 32, false>;
extern "C" __global__ void test(__half* q, __half* dout, const float* sums, float* seen)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const auto view = [](__half* data) { return View<__half, 4>{data, {0, 40 * 32, 32, 1}}; };
    const RowSums* const of_rows = reinterpret_cast<const RowSums*>(sums);
    const Operands in = {view(q), view(q), view(q), view(q), view(dout), nullptr, of_rows, 4, 4, 40, 40, 48, 1.0f};
    const TileCopier<Tile, 64> copier;
    unsigned char* const douts = smem + 2 * Tile::bytes(16);
    unsigned char* const rows = douts + 2 * Tile::bytes(16);
    constexpr bool BACK = STEP < 0;
    using Stream = QueryStream<Tile, 16, STEP, 64, Operands>;
    const Stream stream = {in, smem, douts, rows, 0, 3, BACK ? 32 : 0, BACK ? 0 : 32, copier};
    int stage = 0, number = 0;
    stream.copy(1, stream.query_first, 0);
    commit_copies();
    for (int head = 1; head < 3; ++head)
        for (int query = stream.query_first; 0 <= query && query < 48; query += STEP) {
            wait_for_copies<0>();
            __syncthreads();
            stream.copy_after(head, query, stage ^ 1);
            for (int i = threadIdx.x; i < 16 * 32; i += 64) {
                const int at = stage * Tile::bytes(16) + Tile::offset(i / 32, i % 32 / 8) + i % 8 * 2;
                float* const to = seen + (number * 16 + i / 32) * 66 + i % 32;
                to[0] = to_float(*reinterpret_cast<const __half*>(smem + at));
                to[32] = to_float(*reinterpret_cast<const __half*>(douts + at));
                if (i % 32 < 2) to[64] = reinterpret_cast<const float*>(rows)[(stage * 16 + i / 32) * 2 + i % 32];
            }
            stage ^= 1;
            ++number;
        }
}
"""


@pytest.mark.parametrize("step", [16, -16])
def test_tiles_of_all_heads_in_turn(step: int, cache: BuildCache) -> None:
    """Heads 1 and 2 of 4, three tiles each, of 40 queries; queries that do not exist are 0."""
    kernel = SmallKernel(KERNEL.replace("STEP", str(step)), cache, threads=64, smem=4 * 16 * 64 + 2 * 16 * 8)
    rng = np.random.default_rng(1)
    q, dout = (rng.integers(-99, 100, (4, 40, 32)).astype(np.float16) for _ in range(2))
    sums = rng.standard_normal((4, 48, 2)).astype(np.float32)
    seen = kernel(q=q, dout=dout, sums=sums, seen=np.zeros((2, 3, 16, 66), np.float32))["seen"]
    padded = np.zeros((2, 48, 66), np.float32)
    padded[:, :40, :32], padded[:, :40, 32:64], padded[..., 64:] = q[1:3], dout[1:3], sums[1:3]
    tiles = padded.reshape(2, 3, 16, 66)
    np.testing.assert_array_equal(seen, tiles if step > 0 else tiles[:, ::-1])
