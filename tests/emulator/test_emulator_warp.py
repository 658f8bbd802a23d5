"""Warp operations: every kind of exchange and vote, with widths, partial masks and lanes that have left."""

import numpy as np
import pytest

from tests.emulator.emulating import floats, ints, run

CODE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void shuffles(int* out, int width, int by)
{
    const int lane = threadIdx.x;
    const int x = 100 + lane;
    out[lane] = __shfl_sync(0xffffffffu, x, by, width);
    out[32 + lane] = __shfl_up_sync(0xffffffffu, x, by, width);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, x, by, width);
    out[96 + lane] = __shfl_xor_sync(0xffffffffu, x, by, width);
}
extern "C" __global__ void types(float* out)
{
    const int lane = threadIdx.x;
    const int from = 31 - lane;
    out[lane] = __shfl_sync(~0u, 0.5f + lane, from);
    out[32 + lane] = float(__shfl_sync(~0u, 1e10 + lane, from) - 1e10);
    out[64 + lane] = float(__shfl_sync(~0u, (1ll << 40) + lane, from) - (1ll << 40));
    out[96 + lane] = float(__shfl_sync(~0u, (1ull << 63) + lane, from) - (1ull << 63));
    out[128 + lane] = __half2float(__shfl_sync(~0u, __float2half(lane), from));
    const __half2 pair = __shfl_xor_sync(~0u, __floats2half2_rn(lane, -lane), 1);
    out[160 + lane] = __low2float(pair) - __high2float(pair);
    out[192 + lane] = __bfloat162float(__shfl_down_sync(~0u, __float2bfloat16(lane), 4));
    out[224 + lane] = __high2float(__shfl_up_sync(~0u, __floats2bfloat162_rn(0.0f, lane), 4));
    out[256 + lane] = float(__shfl_sync(~0u, unsigned(lane), from));
}
extern "C" __global__ void halves(int* out)
{
    const int lane = threadIdx.x;
    int x = lane;
    if (lane < 16) {
        for (int i = 0; i < 3; ++i) x += __shfl_xor_sync(0x0000ffffu, x, 1);
    } else if (lane < 24) {
        x = __shfl_sync(0x00ff0000u, x, 16);
        x += __shfl_xor_sync(0x00ff0000u, lane, 7);
    } else {
        x = -__shfl_sync(0xff000000u, x, 3, 4);
    }
    __syncwarp();
    out[lane] = __shfl_sync(~0u, x, lane ^ 31);
}
extern "C" __global__ void votes(int* out)
{
    const int lane = threadIdx.x;
    out[lane] = __ballot_sync(~0u, lane % 3 == 0);
    out[32 + lane] = __any_sync(~0u, lane == 9) + 2 * __any_sync(~0u, lane > 99);
    out[64 + lane] = __all_sync(~0u, lane < 32) + 2 * __all_sync(~0u, lane != 5);
    out[96 + lane] = __match_any_sync(~0u, lane / 5);
    int same = -1;
    const unsigned first = __match_all_sync(~0u, 7.5f, &same);
    out[128 + lane] = same == 1 && first == ~0u;
    const unsigned none = __match_all_sync(~0u, lane == 3, &same);
    out[160 + lane] = same == 0 && none == 0;
    if (lane >= 20) out[192 + lane] = __ballot_sync(0xfff00000u, lane & 1);
    if (lane >= 20) out[224 + lane] = __all_sync(0xfff00000u, lane >= 20);
    out[256 + lane] = __activemask();
    if (lane % 4 == 1) out[288 + lane] = __popc(__activemask()) + 100 * __popc(__ballot_sync(__activemask(), lane < 9));
}
extern "C" __global__ void reductions(int* out)
{
    const int lane = threadIdx.x;
    out[lane] = __reduce_add_sync(~0u, lane - 3);
    out[32 + lane] = __reduce_min_sync(~0u, lane - 3);
    out[64 + lane] = __reduce_max_sync(~0u, unsigned(lane - 3));
    out[96 + lane] = __reduce_and_sync(~0u, unsigned(lane | 64));
    out[128 + lane] = __reduce_or_sync(~0u, 1u << lane % 7);
    out[160 + lane] = __reduce_xor_sync(~0u, unsigned(lane == 9 ? 6 : 1));
    if (lane % 2) out[192 + lane] = __reduce_add_sync(0xaaaaaaaau, lane);
}
extern "C" __global__ void left(float* out)
{
    const int lane = threadIdx.x % 32;
    if (lane >= 10) return;  // the others go on without them
    out[threadIdx.x] = lane;
    __syncwarp();
    float x = lane;
    for (int by = 1; by < 8; by *= 2) x += __shfl_xor_sync(~0u, x, by, 8);
    out[threadIdx.x] = x;
    out[threadIdx.x + 64] = __shfl_down_sync(~0u, 1.0f, 4);
    out[threadIdx.x + 128] = __popc(__activemask()) + 100 * __popc(__ballot_sync(~0u, 1));
}
extern "C" __global__ void short_warp(int* out)
{
    out[threadIdx.x] = __popc(__ballot_sync(~0u, 1));
}
extern "C" __global__ void many_warps(int* out)
{
    const int i = threadIdx.x + blockDim.x * blockIdx.x;
    int x = i;
    for (int round = 0; round < 20; ++round)
        for (int by = 1; by < 32; by *= 2) x += __shfl_xor_sync(~0u, x, by) & 0xff;
    out[i] = x;
}
"""

LANES = np.arange(32)


@pytest.mark.parametrize("width", [1, 2, 8, 16, 32])
@pytest.mark.parametrize("by", [0, 1, 3, 5, 16, 31])
def test_shuffles_read_the_lane_that_cuda_defines(width: int, by: int) -> None:
    out = run(CODE, "shuffles", {"out": ints(4, 32)}, width, by)["out"] - 100
    segment = LANES // width * width
    np.testing.assert_array_equal(out[0], segment + by % width)
    np.testing.assert_array_equal(out[1], np.where(LANES - by >= segment, LANES - by, LANES))
    np.testing.assert_array_equal(out[2], np.where(LANES + by < segment + width, LANES + by, LANES))
    np.testing.assert_array_equal(out[3], np.where((LANES ^ by) < segment + width, LANES ^ by, LANES))


def test_shuffles_move_every_type() -> None:
    out = run(CODE, "types", {"out": floats(9, 32)})["out"]
    backwards = LANES[::-1]
    np.testing.assert_array_equal(out[0], backwards + 0.5)
    for row in (1, 2, 3, 4, 8):
        np.testing.assert_array_equal(out[row], backwards)
    np.testing.assert_array_equal(out[5], 2 * (LANES ^ 1))
    np.testing.assert_array_equal(out[6], np.where(LANES < 28, LANES + 4, LANES))
    np.testing.assert_array_equal(out[7], np.where(LANES >= 4, LANES - 4, LANES))


def test_parts_of_a_warp_run_different_operations() -> None:
    out = run(CODE, "halves", {"out": ints(32)})["out"][::-1]
    expected = LANES.copy()
    for _ in range(3):
        expected[:16] += expected[:16][np.arange(16) ^ 1]
    expected[16:24] = 16 + (LANES[16:24] ^ 7)
    expected[24:] = -(LANES[24:] // 4 * 4 + 3)
    np.testing.assert_array_equal(out, expected)


def test_votes_and_matches() -> None:
    out = run(CODE, "votes", {"out": ints(10, 32)})["out"]
    thirds = sum(1 << lane for lane in range(0, 32, 3))
    np.testing.assert_array_equal(out[0].view(np.uint32), thirds)
    np.testing.assert_array_equal(out[1], 1)
    np.testing.assert_array_equal(out[2], 1)
    same = [sum(1 << other for other in range(32) if other // 5 == lane // 5) for lane in range(32)]
    np.testing.assert_array_equal(out[3].view(np.uint32), same)
    np.testing.assert_array_equal(out[4:6], 1)
    odd = sum(1 << lane for lane in range(21, 32, 2))
    np.testing.assert_array_equal(out[6].view(np.uint32)[20:], odd)
    np.testing.assert_array_equal(out[6][:20], -77)
    np.testing.assert_array_equal(out[7][20:], 1)
    np.testing.assert_array_equal(out[8], -1)
    np.testing.assert_array_equal(out[9][1::4], 208)


def test_reductions() -> None:
    out = run(CODE, "reductions", {"out": ints(7, 32)})["out"]
    expected = [(LANES - 3).sum(), -3, -1, 64, 127, 7, LANES[1::2].sum()]
    for row, value in zip(out, expected, strict=True):
        np.testing.assert_array_equal(row[1::2], value)
    np.testing.assert_array_equal(out[:6, 0::2], np.array(expected[:6])[:, None].repeat(16, axis=1))


def test_lanes_that_left_are_not_waited_for_and_read_as_nan() -> None:
    out = run(CODE, "left", {"out": floats(3, 64)}, block=(64, 1, 1))["out"]
    for warp in (out[:, :32], out[:, 32:]):
        np.testing.assert_array_equal(warp[0, :8], np.arange(8).sum())
        assert np.isnan(warp[0, 8:10]).all()  # their partners have left
        np.testing.assert_array_equal(warp[1, :6], 1.0)
        assert np.isnan(warp[1, 6:10]).all()
        np.testing.assert_array_equal(warp[2, :10], 1010)
        np.testing.assert_array_equal(warp[:, 10:], -77.5)


def test_the_last_warp_may_be_short() -> None:
    out = run(CODE, "short_warp", {"out": ints(45)}, block=(45, 1, 1))["out"]
    np.testing.assert_array_equal(out, [32] * 32 + [13] * 13)


def test_many_exchanges_in_many_warps_keep_their_order() -> None:
    out = run(CODE, "many_warps", {"out": ints(3, 8, 32)}, grid=(3, 1, 1), block=(256, 1, 1))["out"]
    expected = np.arange(3 * 8 * 32).reshape(3, 8, 32)
    for _ in range(20):
        for by in (1, 2, 4, 8, 16):
            expected = expected + (expected[..., LANES ^ by] & 0xFF)
    np.testing.assert_array_equal(out, expected)
