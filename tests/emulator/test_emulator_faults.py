"""What a kernel must not do: every such launch fails with its place, and the next one works."""

import numpy as np
import pytest

from autotune.core.errors import LaunchError
from autotune.devices.emulated import CpuDevice
from tests.emulator.emulating import SPEC, floats, ints, run

CODE = r"""
#include <cassert>
extern "C" __global__ void read_at(float* x, float* y, int i)
{
    if (threadIdx.x == 3 && blockIdx.x == 1) y[0] = x[i];
}
extern "C" __global__ void write_at(float* x, int i)
{
    if (threadIdx.x == 3 && blockIdx.x == 1) x[i] = 1.0f;
}
extern "C" __global__ void shared_at(float* y, int i, int store)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = 2.0f;
    __syncthreads();
    if (store) tile[i] = 3.0f;
    y[threadIdx.x] = tile[i];
}
extern "C" __global__ void null_pointer(int* x)
{
    int* volatile nothing = nullptr;
    x[0] = nothing[threadIdx.x];
}
extern "C" __global__ void misaligned(float* x, int i)
{
    *reinterpret_cast<float2*>(x + i) = make_float2(1.0f, 2.0f);
    *reinterpret_cast<float4*>(x + 4 * i) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
}
extern "C" __global__ void traps(int* x) { if (threadIdx.x == 5) __trap(); }
extern "C" __global__ void asserts(int* x) { assert(threadIdx.y != 2); }
extern "C" __global__ void aborts(int* x) { abort(); }
extern "C" __global__ void divides(int* x) { x[0] = 7 / x[1]; }
extern "C" __global__ void deep(float* x, int n)
{
    volatile float local[200000];
    for (int i = 0; i < 200000; i += 100) local[i] = i;
    x[0] = local[n];
}
extern "C" __global__ void others_stop(int* x)
{
    if (blockIdx.x == 0) __trap();
    volatile int* const wait = x;
    while (*wait == 0) __nanosleep(100);
}
extern "C" __global__ void takes_two_turns(int* x, int turns)
{
    if (threadIdx.x >= 32)
        emulator::named_barrier(1, 64);
    else
        for (int i = 0; i < turns; ++i) emulator::arrive_at_barrier(1, 64, EMULATOR_HERE);
}
extern "C" __global__ void good(int* x) { x[threadIdx.x] = threadIdx.x; __syncthreads(); }
"""


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    """One device for all: after each failure it must go on working."""
    return CpuDevice(SPEC, 2)


def failure(device: CpuDevice, kernel: str, *args: object, **launch: object) -> str:
    with pytest.raises(LaunchError) as caught:
        run(CODE, kernel, *args, device=device, **launch)  # type: ignore[arg-type]
    out = run(CODE, "good", {"x": ints(64)}, block=(64, 1, 1), device=device)["x"]
    np.testing.assert_array_equal(out, np.arange(64))
    return str(caught.value)


def test_a_thread_arrives_once_a_phase(device: CpuDevice) -> None:
    """Its second arrival would stand for another thread's, which nobody waits for then."""
    run(CODE, "takes_two_turns", {"x": ints(1)}, 1, block=(64, 1, 1), device=device)
    said = failure(device, "takes_two_turns", {"x": ints(1)}, 2, block=(64, 1, 1))
    assert "a thread arrives at barrier 1 twice in one phase" in said


@pytest.mark.parametrize("size", [1024, 1000, 33])
def test_reading_past_the_end(device: CpuDevice, size: int) -> None:
    beyond = -(-size // 4) * 4  # where the 16 bytes that hold the last element end
    said = failure(device, "read_at", {"x": floats(size), "y": floats(1)}, beyond, grid=(2, 1, 1))
    assert said == (
        f"kernel read_at: illegal read {4 * (beyond - size)} bytes past the end of buffer x ({4 * size} bytes), "
        "in block (1, 0, 0), thread (3, 0, 0)"
    )


def test_writing_past_the_end(device: CpuDevice) -> None:
    said = failure(device, "write_at", {"x": floats(1000)}, 1003, grid=(2, 1, 1))
    assert "illegal write 12 bytes past the end of buffer x (4000 bytes), in block (1, 0, 0)" in said


@pytest.mark.parametrize("away", [2**12, 2**16, 2**20, 2**21, 3 * 2**20])
def test_writing_far_past_the_end(device: CpuDevice, away: int) -> None:
    """Where another buffer, or the process's own memory, would lie if the guard were a page."""
    said = failure(device, "write_at", {"x": floats(1000)}, 1000 + away, grid=(2, 1, 1))
    assert f"illegal write {4 * away} bytes past the end of buffer x (4000 bytes)" in said
    said = failure(device, "write_at", {"x": floats(1000)}, -away, grid=(2, 1, 1))
    assert f"illegal write {4 * away} bytes before the start of buffer x (4000 bytes)" in said


def test_between_the_last_element_and_the_guard(device: CpuDevice) -> None:
    arrays = {"x": floats(33), "y": floats(1)}
    assert np.isnan(run(CODE, "read_at", arrays, 34, grid=(2, 1, 1), device=device)["y"][0])
    said = failure(device, "write_at", {"x": floats(33)}, 34, grid=(2, 1, 1))
    assert said == "kernel write_at: illegal write 4 bytes past the end of buffer x"


def test_before_the_start(device: CpuDevice) -> None:
    said = failure(device, "read_at", {"x": floats(1024), "y": floats(1)}, -1, grid=(2, 1, 1))
    assert "illegal read 4 bytes before the start of buffer x (4096 bytes)" in said
    said = failure(device, "write_at", {"x": floats(1024)}, -7, grid=(2, 1, 1))
    assert "illegal write 28 bytes before the start of buffer x" in said


def test_before_the_start_within_the_page(device: CpuDevice) -> None:
    arrays = {"x": floats(100), "y": floats(1)}
    assert np.isnan(run(CODE, "read_at", arrays, -2, grid=(2, 1, 1), device=device)["y"][0])
    said = failure(device, "write_at", {"x": floats(100)}, -2, grid=(2, 1, 1))
    assert said == "kernel write_at: illegal write 8 bytes before the start of buffer x"
    assert run(CODE, "write_at", {"x": floats(100)}, 99, grid=(2, 1, 1), device=device)["x"][99] == 1.0


@pytest.mark.parametrize("store", [0, 1])
def test_outside_of_dynamic_shared_memory(device: CpuDevice, store: int) -> None:
    word = "write" if store else "read"
    said = failure(device, "shared_at", {"y": floats(32)}, 32, store, smem=128)
    assert f"illegal {word} at byte 128 of dynamic shared memory, which has 128 bytes" in said
    said = failure(device, "shared_at", {"y": floats(32)}, -1024, store, smem=128)
    assert f"illegal {word} 4096 bytes before the start of dynamic shared memory (128 bytes)" in said
    assert "at byte 0 of dynamic shared memory, which has 0 bytes" in failure(
        device, "shared_at", {"y": floats(32)}, 0, store
    )


def test_just_before_dynamic_shared_memory_lies_nan(device: CpuDevice) -> None:
    out = run(CODE, "shared_at", {"y": floats(32)}, -1, 0, smem=128, device=device)["y"]
    assert np.isnan(out).all()


def test_null_pointer(device: CpuDevice) -> None:
    said = failure(device, "null_pointer", {"x": ints(1)})
    assert "illegal read at address 0x0, far from every buffer" in said


@pytest.mark.parametrize("i", [1, 3])
def test_misaligned_vectors(device: CpuDevice, i: int) -> None:
    assert "misaligned address" in failure(device, "misaligned", {"x": floats(64)}, i)


def test_aligned_vectors(device: CpuDevice) -> None:
    out = run(CODE, "misaligned", {"x": floats(64)}, 2, device=device)["x"]
    np.testing.assert_array_equal(out[8:12], [1, 2, 3, 4])


def test_trap(device: CpuDevice) -> None:
    said = failure(device, "traps", {"x": ints(1)}, grid=(3, 1, 1))
    assert "trap executed at kernel.cu:" in said
    assert said.endswith("thread (5, 0, 0)")


def test_assertion(device: CpuDevice) -> None:
    said = failure(device, "asserts", {"x": ints(1)}, block=(4, 4, 1))
    assert "assertion failed at kernel.cu:" in said
    assert "threadIdx.y != 2" in said
    assert said.endswith("in block (0, 0, 0), thread (0, 2, 0)")


def test_abort(device: CpuDevice) -> None:
    assert "abort() was called, in block (0, 0, 0), thread (0, 0, 0)" in failure(device, "aborts", {"x": ints(1)})


def test_integer_division_by_zero(device: CpuDevice) -> None:
    said = failure(device, "divides", {"x": np.array([1, 0], np.int32)})
    assert "integer division by zero" in said


def test_stack_overflow(device: CpuDevice) -> None:
    assert "stack overflow" in failure(device, "deep", {"x": floats(1)}, 100)


def test_a_failure_stops_the_blocks_that_poll(device: CpuDevice) -> None:
    said = failure(device, "others_stop", {"x": np.zeros(1, np.int32)}, grid=(8, 1, 1))
    assert "trap executed" in said


def test_many_failures_leave_nothing_behind(device: CpuDevice) -> None:
    for _ in range(50):
        with pytest.raises(LaunchError, match="illegal read"):
            run(CODE, "null_pointer", {"x": ints(1)}, block=(256, 1, 1), grid=(4, 1, 1), device=device)
