"""Variables without a value are garbage on the emulator, in registers, arrays and shared memory: NaN, or a number."""

from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.core.plan import Launch, LaunchPlan
from autotune.devices.emulated import CpuDevice
from tests.emulator.emulating import SPEC, buffers_of, build, floats, pointer, run

UNSET = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void unset(float* y, int n)
{
    float scalar;
    float array[8];
    __half half;
    __nv_bfloat16 bfloat;
    double wide;
    unsigned whole;
    float4 vector, other[2];
    if (n > 100) scalar = array[0] = vector.x = 1.0f;
    for (int i = 0; i < n; ++i) array[i % 8] += 1.0f;
    y[threadIdx.x] = scalar + 1.0f;
    y[32 + threadIdx.x] = 0.0f * array[threadIdx.x % 8];
    y[64 + threadIdx.x] = __half2float(half);
    y[96 + threadIdx.x] = __bfloat162float(bfloat);
    y[128 + threadIdx.x] = float(wide);
    y[160 + threadIdx.x] = vector.x;
    y[192 + threadIdx.x] = other[threadIdx.x % 2].y + (whole == 0xffffffffu ? 0.0f : 1.0e9f);
}
"""
KINDS = ("scalar", "array", "half", "bfloat", "double", "vector", "vectors")


COUNTS = """
extern "C" __global__ void counts(float* y)
{
    int number;
    long long wide[2][2];
    short narrow[4];
    y[threadIdx.x] = number;
    y[32 + threadIdx.x] = wide[threadIdx.x / 2 % 2][1];
    y[64 + threadIdx.x] = narrow[threadIdx.x % 4];
}
"""


def test_whole_numbers_with_a_sign_are_minus_one_or_as_large_as_can_be() -> None:
    got = run(COUNTS, "counts", {"y": floats(96)})["y"].reshape(3, 16, 2)
    assert (got[..., 0] == -1).all()
    assert (got[..., 1] == np.array([2**31 - 1, 2**63 - 1, 2**15 - 1], np.float32)[:, None]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_never_given_a_value_is_nan(kind: str) -> None:
    got = run(UNSET, "unset", {"y": floats(len(KINDS) * 32)}, 8)["y"].reshape(-1, 32)[KINDS.index(kind)]
    assert np.isnan(got).all(), got[0]


GARBAGE = """
#include <cuda_pipeline.h>
extern "C" __global__ void garbage(float* y)
{
    __shared__ float tile[4];
    __shared__ float copied[4];
    extern __shared__ float more[];
    float several[2][3][4];
    float one;
    if (y[0] == 1.0f) tile[threadIdx.x % 4] = 1.0f;  // never
    if (threadIdx.x == 0) {
        __pipeline_memcpy_async(copied, y, 16);
        __pipeline_commit();
        y[4] = copied[0];
        __pipeline_wait_prior(0);
        y[0] = one;
        y[1] = several[1][2][3];
        y[2] = tile[1];
        y[3] = more[2];
    }
}
"""


def garbage_of(runs: int) -> list[NDArray[np.float32]]:
    """What a kernel finds where nothing was written, in each of its runs."""
    arrays = {"y": floats(5)}
    buffers, device = buffers_of(arrays), CpuDevice(SPEC, 1)
    launch = Launch("garbage", (1, 1, 1), (32, 1, 1), 16, tuple(map(pointer, buffers)))
    plan = LaunchPlan(buffers, (launch,))
    device.allocate(buffers)
    found = []
    with closing(device), closing(device.load(build(GARBAGE), plan)) as program:
        for _ in range(runs):
            device.upload("y", arrays["y"])
            device.run(program, plan)
            found.append(device.download("y"))
    return found


def test_garbage_is_nan_then_a_small_number_then_a_large_one() -> None:
    """Kernels that compute again what comes out as NaN would hide that they read what nobody has written, and so would
    those that compute again what overflows, were the number always a large one."""
    found = garbage_of(6)
    assert np.isnan(found[0::3]).all(), found
    for first, byte in ((1, b"\x40"), (2, b"\x44")):
        assert (np.array(found[first::3]) == np.frombuffer(byte * 4, np.float32)).all(), found
