"""Atomic operations between the blocks of a grid, which run on several OS threads."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.emulator.emulating import floats, ints, run

CODE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void integers(int* out)
{
    const int i = threadIdx.x + blockDim.x * blockIdx.x;
    unsigned* const u = reinterpret_cast<unsigned*>(out);
    atomicAdd(out, 1);
    atomicSub(out + 1, 2);
    atomicMax(out + 2, i);
    atomicMin(out + 3, -i);
    atomicOr(u + 4, 1u << i % 20);
    atomicAnd(u + 5, ~(1u << i % 20));
    atomicXor(u + 6, 1u << i % 32);
    atomicInc(u + 7, 99u);
    atomicDec(u + 8, 99u);
    atomicAdd(reinterpret_cast<unsigned long long*>(out + 10), 1ull << 20);
    int seen = out[12];
    while (true) {
        const int found = atomicCAS(out + 12, seen, seen + 3);
        if (found == seen) break;
        seen = found;
    }
    atomicAdd(out + 13, atomicExch(out + 14, i));
    out[16 + i] = atomicAdd_block(out + 15, 1);
}
extern "C" __global__ void floating(float* f, double* d, __half* h, __nv_bfloat16* b)
{
    const int i = threadIdx.x + blockDim.x * blockIdx.x;
    atomicAdd(f, 0.5f);
    atomicAdd(reinterpret_cast<float2*>(f) + 1, make_float2(1.0f, 2.0f));
    atomicAdd(reinterpret_cast<float4*>(f) + 1, make_float4(1.0f, 2.0f, 3.0f, 4.0f));
    atomicAdd(d, 0.125);
    if (i < 1000) atomicAdd(h + i % 2, __float2half(1.0f));
    atomicAdd(reinterpret_cast<__half2*>(h) + 1, __floats2half2_rn(0.25f, -0.25f));
    if (i < 200) atomicAdd(b + i % 2, __float2bfloat16(1.0f));
    if (i < 200) atomicAdd(reinterpret_cast<__nv_bfloat162*>(b) + 1, __floats2bfloat162_rn(1.0f, -1.0f));
}
extern "C" __global__ void last_block(float* partial, float* sum, int* done)
{
    __shared__ bool last;
    partial[blockIdx.x] = blockIdx.x + 1.0f;
    __threadfence();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == int(gridDim.x) - 1;
    __syncthreads();
    if (!last || threadIdx.x > 0) return;
    for (int i = 0; i < gridDim.x; ++i) *sum += partial[i];
}
extern "C" __global__ void in_turn(int* lock, float* x)
{
    // Blocks add in their order, as deterministic accumulation does.
    if (threadIdx.x == 0)
        while (atomicAdd(lock, 0) != int(blockIdx.x)) {}
    __syncthreads();
    if (threadIdx.x == 0) {
        *x = *x * 0.5f + blockIdx.x;
        __threadfence();
        atomicExch(lock, int(blockIdx.x) + 1);
    }
}
extern "C" __global__ void spin_lock(int* lock, int* count)
{
    while (atomicCAS(lock, 0, 1) != 0) {}
    *count += 1;
    __threadfence();
    atomicExch(lock, 0);
}
"""


def test_integer_atomics() -> None:
    start = np.zeros(16 + 2560, np.int32)
    start[5] = -1
    start[14] = -5
    out = run(CODE, "integers", {"out": start}, grid=(40, 1, 1), block=(64, 1, 1))["out"]
    n = 2560
    expected = [n, -2 * n, n - 1, 1 - n, 0xFFFFF, ~0xFFFFF, 0, n % 100]
    np.testing.assert_array_equal(out[:8], expected)
    assert out[8] == -n % 100
    assert out[10:12].view(np.uint64)[0] == n << 20
    assert out[12] == 3 * n
    assert out[13] + out[14] == n * (n - 1) // 2 - 5
    np.testing.assert_array_equal(np.sort(out[16:]), np.arange(n))


def test_floating_point_atomics() -> None:
    arrays: dict[str, NDArray[Any]] = {
        "f": np.zeros(8, np.float32), "d": np.zeros(1), "h": np.zeros(4, np.float16),
        "b": np.zeros(4, ml_dtypes.bfloat16),
    }  # fmt: skip
    out = run(CODE, "floating", arrays, grid=(40, 1, 1), block=(64, 1, 1))
    n = 2560
    np.testing.assert_array_equal(out["f"], [n / 2, 0, n, 2 * n, n, 2 * n, 3 * n, 4 * n])
    assert out["d"][0] == n / 8
    np.testing.assert_array_equal(out["h"], [500, 500, 512, -512])  # at 512 one quarter is half of the last place
    np.testing.assert_array_equal(out["b"].astype(np.float32), [100, 100, 200, -200])


def test_the_last_block_sees_what_the_others_wrote() -> None:
    arrays = {"partial": floats(300), "sum": np.zeros(1, np.float32), "done": np.zeros(1, np.int32)}
    out = run(CODE, "last_block", arrays, grid=(300, 1, 1))
    assert out["sum"][0] == 300 * 301 / 2


def test_blocks_wait_for_each_other_in_order() -> None:
    arrays = {"lock": np.zeros(1, np.int32), "x": np.zeros(1, np.float32)}
    out = run(CODE, "in_turn", arrays, grid=(60, 1, 1))["x"][0]
    expected = np.float32(0)
    for block in range(60):
        expected = expected * np.float32(0.5) + np.float32(block)
    assert out == expected


def test_a_spin_lock_among_all_threads() -> None:
    arrays = {"lock": np.zeros(1, np.int32), "count": np.zeros(1, np.int32)}
    assert run(CODE, "spin_lock", arrays, grid=(20, 1, 1), block=(64, 1, 1))["count"][0] == 1280
    assert ints(1)[0] == -77
