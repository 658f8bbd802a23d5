"""A step of a warp that owns keys: P and dS in every schedule, whoever multiplies with them."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.attention.backward_steps import assert_product, operands, step_of

KERNEL = """
#include "common/attention/key_step.cuh"
constexpr PairRoute ROUTE = PairRoute::ROUTE_NAME;
using Tile = SharedTile<32, true>;
using Pairs = SharedTile<64, true>;
using Sums = float[1][4][4];
__device__ void fill(unsigned char* tile, const __half* from, int rows)
{
    for (int i = threadIdx.x; i < rows * 32; i += 32)
        reinterpret_cast<__half*>(tile + Tile::offset(i / 32, i % 32 / 8))[i % 8] = from[i];
}
__device__ void show(float* to, const Sums& x)
{
    for (int n = 0; n < 4; ++n)
        for (int e = 0; e < 4; ++e)
            to[(e / 2 * 8 + threadIdx.x / 4) * 32 + 8 * n + threadIdx.x % 4 * 2 + e % 2] = x[0][n][e];
}
extern "C" __global__ void test(const __half* q, const __half* dout, const __half* k, const __half* v,
                                const float* sums, float* dk, float* dv, float* p, float* ds)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const q_tile = smem;
    unsigned char* const dout_tile = q_tile + Tile::bytes(64);
    unsigned char* const k_tile = dout_tile + Tile::bytes(64);
    unsigned char* const v_tile = k_tile + Tile::bytes(16);
    unsigned char* const p_tile = v_tile + Tile::bytes(16);
    unsigned char* const ds_tile = p_tile + Pairs::bytes(16);
    fill(q_tile, q, 64);
    fill(dout_tile, dout, 64);
    fill(k_tile, k, 16);
    fill(v_tile, v, 16);
    for (int i = threadIdx.x; i < 2 * 16 * 64; i += 32) reinterpret_cast<__half*>(p_tile)[i] = __float2half(7.0f);
    __syncthreads();
    const Scores<true> scores(80, 30, 0.5f);  // aligned at the end: query 50 + i sees key i; key 30 does not exist
    const KeyLanes<Tile, 1, 1> lanes(0, threadIdx.x);
    OwnRows<Tile, 1, KEPT> keys(shared_address(k_tile) + lanes.rows_first);
    OwnRows<Tile, 1, true> values(shared_address(v_tile) + lanes.rows_first);
    keys.keep();
    values.keep();
    const PairWriter<Pairs, false> writer(0, threadIdx.x);
    Sums dk_part = {}, dv_part = {};
    const KeyStep<__half, 16, 1, ROUTE, true, Tile, Pairs, false, 1, KEPT, true, Sums> step = {
        scores, keys, values, lanes, writer, ldmatrix_rows_first<Pairs>(), dk_part, dv_part, shared_address(q_tile),
        shared_address(dout_tile), reinterpret_cast<const float4*>(sums), p_tile, ds_tile};
    step.run<Schedule::SCHEDULE_NAME>(KEY, 16, MASKED);
    __syncthreads();
    show(dk, dk_part);
    show(dv, dv_part);
    for (int i = threadIdx.x; i < 16 * 64; i += 32) {
        const int at = Pairs::offset(i / 64, i % 64 / 8) + i % 8 * 2;
        p[i] = to_float(*reinterpret_cast<const __half*>(p_tile + at));
        ds[i] = to_float(*reinterpret_cast<const __half*>(ds_tile + at));
    }
}
"""


@pytest.mark.parametrize(
    ("schedule", "route", "masked"),
    [
        ("TOGETHER", "STAY", True),
        ("OVERLAPPED", "DS_COPIED", False),
        ("IN_TURN", "DS_COPIED", True),
        ("IN_TURN", "CHANGE_WARPS", True),
        ("TOGETHER", "CHANGE_WARPS", False),
    ],
)
def test_a_step_of_sixty_four_queries(schedule: str, route: str, masked: bool, cache: BuildCache) -> None:
    """Queries 16 to 79, keys from 20 on (unmasked: from -50 on, which all of them see); chunks of 16 queries."""
    key = 20 if masked else -50
    text = KERNEL.replace("ROUTE_NAME", route).replace("SCHEDULE_NAME", schedule).replace("KEY,", f"{key},")
    kept = "true" if route == "STAY" else "false"
    kernel = SmallKernel(
        text.replace("MASKED", str(masked).lower()).replace("KEPT", kept),
        cache,
        smem=2 * 64 * 64 + 2 * 16 * 64 + 2 * 2048,
    )
    x = operands(1, 64, 16, 32)
    empty = np.zeros((16, 32), np.float32)
    got = kernel(**{n: x[n] for n in ("q", "dout", "k", "v", "sums")}, dk=empty, dv=empty,
                 p=np.zeros((16, 64), np.float32), ds=np.zeros((16, 64), np.float32))  # fmt: skip
    query, keys = np.mgrid[16:80, key : key + 16]
    visible = (query >= keys + 50) & (keys < 30) if masked else np.full((64, 16), True)
    want = step_of(x, 0.5, visible)
    if route == "CHANGE_WARPS":
        np.testing.assert_allclose(got["p"], want.p.T, rtol=2.0**-10, atol=1e-6)
        assert not got["dk"].any()
        assert not got["dv"].any()
    else:
        assert (got["p"] == 7).all()
        assert_product(got["dv"], want.p.T, x["dout"])
        assert_product(got["dk"], want.ds.T, x["q"])
    if route == "STAY":
        assert (got["ds"] == 7).all()
    else:
        np.testing.assert_allclose(got["ds"], want.ds.T, rtol=8e-3, atol=8e-3)
        assert (got["ds"][~visible.T] == 0).all()
