"""Kernels that synchronise correctly, each in another way: nothing may be found."""

from typing import Any

import numpy as np
import pytest

from tests.trace.tracing import trace

CODE = r"""
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

extern "C" __global__ void last_block_adds_up(const float* x, float* y, unsigned* done, int n)
{
    __shared__ bool is_last;
    float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x == 0) {
        y[1 + blockIdx.x] = sum;
        __threadfence();
        is_last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float total = 0.0f;
        for (int i = 0; i < gridDim.x; ++i) total += y[1 + i];
        y[0] = total;
    }
}
extern "C" __global__ void without_fence(const float* x, float* y, unsigned* done, int n)
{
    y[1 + blockIdx.x] = x[blockIdx.x];
    const bool is_last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    if (is_last)
        for (int i = 0; i < gridDim.x; ++i) y[1 + gridDim.x + i] = y[1 + i];
}
extern "C" __global__ void warps_hand_over(const float* x, float* y, unsigned* done, int n)
{
    __shared__ float tile[32];
    const int lane = threadIdx.x % 32;
    for (int step = 0; step < 4; ++step) {
        if (threadIdx.x < 32) {
            tile[lane] = x[lane] + step;
            emulator::arrive_at_barrier(1, 64, EMULATOR_HERE);
            emulator::named_barrier(2, 64);
        } else {
            emulator::named_barrier(1, 64);
            y[32 * step + lane] = tile[31 - lane];
            emulator::arrive_at_barrier(2, 64, EMULATOR_HERE);
        }
    }
}
extern "C" __global__ void warp_scan(const float* x, float* y, unsigned* done, int n)
{
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    for (int step = 1; step < 32; step *= 2) {
        const float left = threadIdx.x % 32 >= step ? tile[threadIdx.x - step] : 0.0f;
        __syncwarp();
        tile[threadIdx.x] += left;
        __syncwarp();
    }
    y[threadIdx.x] = tile[threadIdx.x];
}
extern "C" __global__ void tiles_of_eight(const float* x, float* y, unsigned* done, int n)
{
    namespace cg = cooperative_groups;
    __shared__ float tile[64];
    const auto group = cg::tiled_partition<8>(cg::this_thread_block());
    tile[threadIdx.x] = x[threadIdx.x];
    group.sync();
    y[threadIdx.x] = tile[threadIdx.x ^ 7];
}
extern "C" __global__ void atomics_alone(const float* x, float* y, unsigned* done, int n)
{
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0.0f;
    __syncthreads();
    atomicAdd(&sum, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(&y[blockIdx.x], sum);
    atomicAdd(done, 1);
}
extern "C" __global__ void double_buffered(const float* x, float* y, unsigned* done, int n)
{
    extern __shared__ __align__(16) float tile[];
    const int steps = 6;
    auto fetch = [&](int step) {
        const int at = 4 * threadIdx.x;
        if (step < steps) __pipeline_memcpy_async(tile + step % 2 * 128 + at, x + 128 * step + at, 16);
        __pipeline_commit();
    };
    fetch(0);
    float sum = 0.0f;
    for (int step = 0; step < steps; ++step) {
        fetch(step + 1);
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += tile[step % 2 * 128 + 127 - 4 * threadIdx.x];
        __syncthreads();
    }
    y[threadIdx.x] = sum;
}
extern "C" __global__ void whole_warps_leave(const float* x, float* y, unsigned* done, int n)
{
    __shared__ float tile[32];
    if (threadIdx.x >= 32) return;
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}
extern "C" __global__ void halves_of_a_word(const float* x, float* y, unsigned* done, int n)
{
    __shared__ unsigned short tile[64];
    tile[threadIdx.x] = static_cast<unsigned short>(x[threadIdx.x]);
    __syncthreads();
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void blocks_share_words(const float* x, float* y, unsigned* done, int n)
{
    volatile unsigned short* const own = reinterpret_cast<unsigned short*>(y) + blockIdx.x;
    *own = 1;
    if (*own == 1) *own = 2;
}
extern "C" __global__ void partial_block(const float* x, float* y, unsigned* done, int n)
{
    float sum = x[threadIdx.x];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    __syncthreads();
    y[threadIdx.x] = sum;
}
"""


def found(kernel: str, block: int = 64, grid: int = 1, smem: int = 0, **more: Any) -> list[str]:
    inputs, counter = {"x": np.ones(1024, np.float32)}, {"y": np.ones(1024, np.float32), "done": np.ones(4, np.int32)}
    plan: dict[str, Any] = {"block": (block, 1, 1), "grid": (grid, 1, 1), "smem": smem, **more}
    return [str(finding) for finding in trace(CODE, kernel, inputs, counter, 0, cleared=("done",), **plan).findings]


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [
        ("last_block_adds_up", {"block": 32, "grid": 20}),
        ("warps_hand_over", {}),
        ("warp_scan", {}),
        ("tiles_of_eight", {}),
        ("atomics_alone", {"grid": 4}),
        ("double_buffered", {"block": 32, "smem": 1024}),
        ("whole_warps_leave", {}),
        ("halves_of_a_word", {}),
        ("blocks_share_words", {"block": 1, "grid": 8}),
        ("partial_block", {"block": 50}),
    ],
)
def test_nothing_is_found(kernel: str, launch: dict[str, int]) -> None:
    assert found(kernel, **launch) == []


def test_the_fence_matters() -> None:
    (said,) = found("without_fence", block=1, grid=20)
    assert said.startswith("race between blocks: read of 4 bytes of y")


def test_the_same_kernel_launched_again_is_ordered() -> None:
    assert found("whole_warps_leave", times=3) == []
