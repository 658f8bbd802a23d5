"""Blocks: barriers, shared memory, indexes, groups, and threads that wait for what never comes."""

import re

import numpy as np
import pytest

from autotune.core.errors import LaunchError
from autotune.core.plan import Dim3
from tests.emulator.emulating import floats, ints, run

CODE = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

extern __shared__ float whole_file[];

template <int N> __device__ float sum_block(float x)
{
    __shared__ float part[N / 32];
    for (int by = 16; by > 0; by /= 2) x += __shfl_down_sync(~0u, x, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < N / 32; ++i) sum += part[i];
    return sum;
}
extern "C" __global__ void __launch_bounds__(256) block_sums(float* out)
{
    const float sum = sum_block<256>(float(threadIdx.x + 1000 * blockIdx.x));
    out[blockIdx.x * 256 + threadIdx.x] = sum;
}
extern "C" __global__ void tree(int* out)
{
    __shared__ int x[1024];
    x[threadIdx.x] = threadIdx.x;
    for (int half = 512; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) x[threadIdx.x] += x[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[0] = x[0];
}
extern "C" __global__ void predicates(int* out)
{
    const int i = threadIdx.x;
    out[i] = __syncthreads_count(i % 3 == 0);
    out[100 + i] = __syncthreads_and(i < 99) + 2 * __syncthreads_and(i < 100);
    out[200 + i] = __syncthreads_or(i == 99) + 2 * __syncthreads_or(i == 100);
}
extern "C" __global__ void some_return(int* out)
{
    __shared__ int arrived[4];
    const int i = threadIdx.x;
    if (i % 2 == 1) return;
    if (i < 4) arrived[i] = 10 + i;
    __syncthreads();
    if (i == 126) return;
    __syncthreads();
    out[i] = arrived[2];
}
extern "C" __global__ void indexes(int* out)
{
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[i] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x + 10000 * threadIdx.y +
             100000 * threadIdx.z + 1000000 * (gridDim.x + gridDim.y + gridDim.z) * warpSize / 32;
}
extern "C" __global__ void fresh_memory(float* out)
{
    __shared__ float fixed[64];
    extern __shared__ __align__(16) unsigned char bytes[];
    float* const dynamic = reinterpret_cast<float*>(bytes);
    const int i = threadIdx.x + 64 * blockIdx.x;
    out[i] = fixed[threadIdx.x];
    out[64 * gridDim.x + i] = dynamic[threadIdx.x];
    fixed[threadIdx.x] = dynamic[threadIdx.x] = 1.0f;  // the next block must not see it
}
extern "C" __global__ void two_dimensional(float* out)
{
    extern __shared__ alignas(16) float tile[][33];
    tile[threadIdx.y][threadIdx.x] = 100 * threadIdx.y + threadIdx.x;
    __syncthreads();
    out[threadIdx.y * blockDim.x + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void file_scope(float* out)
{
    whole_file[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = whole_file[31 - threadIdx.x];
}
extern "C" __global__ void groups(float* out)
{
    const auto block = cg::this_thread_block();
    const cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    const int i = block.thread_rank();
    out[i] = cg::reduce(tile, float(i), cg::plus<float>());
    out[64 + i] = cg::reduce(tile, i, cg::greater<int>());
    out[128 + i] = tile.shfl(i, 3) + 100 * tile.meta_group_rank();
    out[192 + i] = tile.ballot(tile.thread_rank() == 2) + 100 * tile.size();
    tile.sync();
    cg::sync(block);
    out[256 + i] = tile.shfl_down(i, 1) + tile.any(i == 5) * 100;
}
extern "C" __global__ void copies(float* out, float* from)
{
    __shared__ float4 x[8];
    if (threadIdx.x < 8) __pipeline_memcpy_async(&x[threadIdx.x], from + 4 * threadIdx.x, 16, threadIdx.x == 7 ? 8 : 0);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = reinterpret_cast<float*>(x)[threadIdx.x];
}
extern "C" __global__ void handed_over(int* out)
{
    __shared__ int turn;
    volatile int* const now = &turn;
    if (threadIdx.x == 0) *now = 0;
    __syncthreads();
    while (*now != 63 - int(threadIdx.x)) __nanosleep(20);  // thread 63 first
    out[threadIdx.x] = *now;
    *now = *now + 1;
}
extern "C" __global__ void uneven_barrier(int* out)
{
    if (threadIdx.x < 40) __syncthreads();
    else __shfl_sync(~0u, 1, 0);
    out[0] = 1;
}
extern "C" __global__ void one_too_many(int* out)
{
    for (int i = 0; i < (blockIdx.x == 2 && threadIdx.x == 7 ? 3 : 2); ++i)
        if (threadIdx.x != 7) __syncthreads(); else __syncwarp();
    out[0] = 1;
}
extern "C" __global__ void absent_lanes(int* out)
{
    if (threadIdx.x < 16) out[0] = __shfl_sync(~0u, 1, 0);
    else __syncthreads();
}
extern "C" __global__ void wrong_mask(int* out)
{
    out[threadIdx.x] = __ballot_sync(0x0fu, 1);
}
extern "C" __global__ void different_operations(int* out)
{
    if (threadIdx.x % 2) out[0] = __shfl_down_sync(~0u, 1, 1);
    else out[0] = __ballot_sync(~0u, 1);
}
"""


def test_a_block_adds_up() -> None:
    out = run(CODE, "block_sums", {"out": floats(5, 256)}, grid=(5, 1, 1), block=(256, 1, 1))["out"]
    expected = np.arange(256).sum() + 256 * 1000 * np.arange(5)
    np.testing.assert_array_equal(out, expected[:, None].repeat(256, axis=1))


def test_a_barrier_in_a_loop_with_1024_threads() -> None:
    assert run(CODE, "tree", {"out": ints(1)}, block=(1024, 1, 1))["out"][0] == 1023 * 512


def test_barriers_with_a_predicate() -> None:
    out = run(CODE, "predicates", {"out": ints(3, 100)}, block=(100, 1, 1))["out"]
    np.testing.assert_array_equal(out, np.array([34, 2, 1])[:, None].repeat(100, axis=1))


def test_threads_that_have_returned_do_not_hold_up_a_barrier() -> None:
    out = run(CODE, "some_return", {"out": ints(128)}, block=(128, 1, 1))["out"]
    np.testing.assert_array_equal(out[:126:2], 12)
    np.testing.assert_array_equal(np.append(out[1::2], out[126]), -77)


def test_indexes_in_three_dimensions() -> None:
    grid, block = (2, 3, 4), (5, 3, 2)
    out = run(CODE, "indexes", {"out": ints(24, 30)}, grid=grid, block=block)["out"]
    z, y, x = np.indices(grid[::-1]).reshape(3, 24, 1)
    tz, ty, tx = np.indices(block[::-1]).reshape(3, 1, 30)
    np.testing.assert_array_equal(out, x + 10 * y + 100 * z + 1000 * tx + 10000 * ty + 100000 * tz + 9000000)


def test_shared_memory_is_nan_when_a_block_begins() -> None:
    out = run(CODE, "fresh_memory", {"out": floats(2, 9, 64)}, grid=(9, 1, 1), block=(64, 1, 1), smem=256)["out"]
    assert np.isnan(out).all()


def test_dynamic_shared_memory_of_any_declaration() -> None:
    out = run(CODE, "two_dimensional", {"out": floats(8, 8)}, block=(8, 8, 1), smem=8 * 33 * 4)["out"]
    np.testing.assert_array_equal(out, np.arange(8)[:, None] + 100 * np.arange(8))
    out = run(CODE, "file_scope", {"out": floats(32)}, smem=128)["out"]
    np.testing.assert_array_equal(out, np.arange(32)[::-1])


def test_cooperative_groups() -> None:
    out = run(CODE, "groups", {"out": floats(5, 8, 8)}, block=(16, 4, 1))["out"]
    threads = np.arange(64).reshape(8, 8)
    np.testing.assert_array_equal(out[0], threads.sum(axis=1, keepdims=True).repeat(8, axis=1))
    np.testing.assert_array_equal(out[1], threads[:, 7:].repeat(8, axis=1))
    np.testing.assert_array_equal(out[2], (threads[:, 3:4] + 100 * np.arange(8)[:, None]).repeat(8, axis=1))
    np.testing.assert_array_equal(out[3], 804)
    expected = np.append(threads[:, 1:], threads[:, 7:], axis=1)
    expected[0] += 100
    np.testing.assert_array_equal(out[4], expected)


def test_asynchronous_copies_fill_the_rest_with_zeros() -> None:
    source = np.arange(1, 33, dtype=np.float32)
    out = run(CODE, "copies", {"out": floats(32), "from": source})["out"]
    np.testing.assert_array_equal(out, np.append(source[:30], [0, 0]))


def test_a_thread_may_wait_for_another_by_polling() -> None:
    out = run(CODE, "handed_over", {"out": ints(64)}, block=(64, 1, 1))["out"]
    np.testing.assert_array_equal(out, np.arange(64)[::-1])


def failure(kernel: str, grid: Dim3 = (1, 1, 1), block: Dim3 = (32, 1, 1)) -> str:
    with pytest.raises(LaunchError) as caught:
        run(CODE, kernel, {"out": ints(64)}, grid=grid, block=block)
    return str(caught.value)


def line(text: str, occurrence: int = 0) -> int:
    """Line of the source (behind its header line) that holds a text."""
    numbers = [number for number, code in enumerate(("// header\n" + CODE).splitlines(), 1) if text in code]
    return numbers[occurrence]


def test_threads_at_different_places_are_a_deadlock() -> None:
    said = failure("uneven_barrier", block=(64, 1, 1))
    first, second = line("if (threadIdx.x < 40) __syncthreads"), line("else __shfl_sync(~0u, 1, 0)")
    assert f"kernel uneven_barrier: deadlock: thread (0,0,0) waits in __syncthreads at kernel.cu:{first}" in said
    assert f"thread (40,0,0) waits in __shfl_sync at kernel.cu:{second} (mask 0xffffffff)" in said
    assert "0 of 64 threads have exited" in said
    assert said.endswith("in block (0, 0, 0), thread (0, 0, 0)")


def test_a_deadlock_names_its_block() -> None:
    said = failure("one_too_many", grid=(4, 1, 1))
    assert re.search(r"deadlock: .*__syncwarp.*in block \(\d, 0, 0\), thread \(0, 0, 0\)$", said)


def test_lanes_that_never_come_are_a_deadlock() -> None:
    said = failure("absent_lanes")
    assert "thread (0,0,0) waits in __shfl_sync" in said
    assert "thread (16,0,0) waits in __syncthreads" in said


def test_a_mask_without_its_own_lane() -> None:
    assert "called by lane 4, which its mask 0x0000000f does not name" in failure("wrong_mask")


def test_lanes_in_different_operations() -> None:
    assert "different operations with mask 0xffffffff: __shfl_down_sync" in failure("different_operations")


def test_kernels_print(capfd: pytest.CaptureFixture[str]) -> None:
    code = """#include <cstdio>
    extern "C" __global__ void say(int* out)
    {
        if (threadIdx.x < 2) printf("thread %d: %5.2f\\n", threadIdx.x, threadIdx.x + 0.25);
        out[0] = fflush(stdout);
    }"""
    run(code, "say", {"out": ints(1)})
    assert capfd.readouterr().out == "thread 0:  0.25\nthread 1:  1.25\n"
