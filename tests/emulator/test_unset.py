"""Variables without a value are NaN on the emulator, in registers and in arrays, as shared memory is."""

import numpy as np
import pytest

from tests.emulator.emulating import floats, run

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
    assert (got[..., 1] == np.float32([2**31 - 1, 2**63 - 1, 2**15 - 1])[:, None]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_never_given_a_value_is_nan(kind: str) -> None:
    got = run(UNSET, "unset", {"y": floats(len(KINDS) * 32)}, 8)["y"].reshape(-1, 32)[KINDS.index(kind)]
    assert np.isnan(got).all(), got[0]
