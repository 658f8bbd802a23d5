"""Sums of several blocks' shares without clearing: the first stores, others add, the last one has the sum."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/attention/exact.cuh"
#include "common/attention/sum_turns.cuh"
using Turns = SumTurns<4>;
using Sums = AccumulatorSums<64, 16, 16, true>;
constexpr int TILES = 3;
extern "C" __global__ void test(const float* shares, float* sums, long long* counters, __half* out)
{
    __shared__ __align__(16) unsigned char memory[Turns::BYTES];
    const Turns turns = {shared_address(memory)};
    if (threadIdx.x == 0) {
        turns.init();
        fence_mbarrier_init();
    }
    __syncthreads();
    RingPlace<2> at;
    if (threadIdx.x == 128) {  // calls
        fence_gpu();
        for (int tile = 0; tile < TILES; ++tile) turns.call(at, counters + tile, gridDim.x);
    } else if (threadIdx.x == 160) {
        for (int tile = 0; tile < TILES; ++tile) turns.tell(at, counters + tile);
    } else if (threadIdx.x < 128) {
        const View<__half, 4> to = {out, {0, 0, HS * APART, APART}};
        for (int tile = 0; tile < TILES; ++tile) {
            float x[8];
            for (int i = 0; i < 8; ++i) x[i] = shares[((blockIdx.x * TILES + tile) * 128 + threadIdx.x) * 8 + i];
            const uint32_t turn = turns.wait(at);
            take_turn(turn, sums + tile * Sums::TILE, x);
            turns.end(at);
            at.advance();
            if (!(turn & OTHERS_AFTER))
                store_accumulators_marked<HS>(x, 0.5f, to, RowPlace{0, 0, tile * 64}, ROWS, 0);
        }
    }
}
"""


@pytest.mark.parametrize(("blocks", "HS", "apart"), [(1, 16, 1), (2, 16, 1), (5, 8, 3)])
def test_the_sum_is_rounded_once(blocks: int, HS: int, apart: int, cache: BuildCache) -> None:
    """Whole numbers, so that no order matters; rows beyond the last and columns beyond HS stay as they were."""
    rows = 150
    text = KERNEL.replace("HS", str(HS)).replace("APART", str(apart)).replace("ROWS", str(rows))
    kernel = SmallKernel(text, cache, threads=192, blocks=(blocks, 1, 1))
    shares = np.random.default_rng(blocks).integers(-20, 21, (blocks, 3, 128, 8)).astype(np.float32)
    out = np.full((192, HS, apart), 7, np.float16)
    nowhere = np.full(3 * 64 * 16, np.nan, np.float32)
    got = kernel(shares=shares, sums=nowhere, counters=np.zeros(3, np.int64), out=out)
    # accumulators: warp, row of 8, quad's column pair; columns by 8, upper and lower 8 rows, two columns
    whole = shares.sum(axis=0).reshape(3, 4, 8, 4, 2, 2, 2)
    matrix = whole.transpose(0, 1, 5, 2, 4, 3, 6).reshape(192, 16)
    expected = out.copy()
    expected[:rows, :, 0] = 0.5 * matrix[:rows, :HS]
    np.testing.assert_array_equal(got["out"], expected)
    np.testing.assert_array_equal(got["counters"], (blocks << 32) + blocks)


def test_what_is_not_finite_is_marked(cache: BuildCache) -> None:
    """In the first row of the warp, which is not the row."""
    kernel = SmallKernel(KERNEL.replace("HS", "16").replace("APART", "1").replace("ROWS", "192"), cache, threads=192)
    shares = np.ones((1, 3, 128, 8), np.float32)
    shares[0, 1, 2 * 32 + 13, 5] = np.inf
    got = kernel(
        shares=shares,
        sums=np.zeros(3072, np.float32),
        counters=np.zeros(3, np.int64),
        out=np.zeros((192, 16), np.float16),
    )["out"]
    assert np.argwhere(np.isnan(got)).tolist() == [[64 + 2 * 16, 0]]
