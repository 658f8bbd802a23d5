"""fp16 and bf16 round as NumPy and ml_dtypes do; intrinsics give the numbers that CUDA documents."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.core.dtypes import epsilon
from tests.emulator.emulating import NAMES, floats, ints, run

CODE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <class T> __device__ float wide(T x) { return static_cast<float>(x); }
template <class T> __device__ T narrow(float x) { return static_cast<T>(x); }
template <class T> __device__ void binary(T* out, const T* a, const T* b, const T* c, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = __hadd(a[i], b[i]);
        out[n + i] = __hsub(a[i], b[i]);
        out[2 * n + i] = __hmul(a[i], b[i]);
        out[3 * n + i] = __hdiv(a[i], b[i]);
        out[4 * n + i] = __hfma(a[i], b[i], c[i]);
        out[5 * n + i] = a[i] * b[i] + c[i];
        out[6 * n + i] = __hmax(a[i], b[i]);
        out[7 * n + i] = hexp(c[i]);
        out[8 * n + i] = hsqrt(__habs(a[i]));
    }
}
extern "C" __global__ void half_binary(__half* out, const __half* a, const __half* b, const __half* c, int n)
{
    binary(out, a, b, c, n);
    __syncthreads();
    for (int i = 2 * threadIdx.x; i < n; i += 2 * blockDim.x) {
        const __half2 x = __halves2half2(a[i], a[i + 1]);
        const __half2 y = __hfma2(x, __halves2half2(b[i], b[i + 1]), __halves2half2(c[i], c[i + 1]));
        const bool same = __low2half(y) == out[4 * n + i] && __high2half(y) == out[4 * n + i + 1];
        if (!same) out[4 * n + i] = __float2half(777.0f);
    }
}
extern "C" __global__ void bfloat_binary(
    __nv_bfloat16* out, const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c, int n)
{
    binary(out, a, b, c, n);
}
extern "C" __global__ void half_from_float(__half* out, const float* x, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = __float2half(x[i]);
        out[n + i] = __float22half2_rn(make_float2(0.0f, x[i])).y;
        out[2 * n + i] = __float2half_rz(x[i]);
        out[3 * n + i] = __float2half_ru(x[i]);
        out[4 * n + i] = __float2half_rd(x[i]);
        out[5 * n + i] = __double2half(double(x[i]));
    }
}
extern "C" __global__ void bfloat_from_float(__nv_bfloat16* out, const float* x, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = __float2bfloat16(x[i]);
}
extern "C" __global__ void half_to_float(float* out, const __half* x, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = __half2float(x[i]);
        out[n + i] = __high2float(__half2half2(x[i]));
        out[2 * n + i] = __half22float2(__halves2half2(x[i], x[i])).x;
    }
}
extern "C" __global__ void math(float* out, const float* x, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float a = x[i];
        const float r[] = {__expf(a), exp2f(a), __logf(a), __log2f(a), rsqrtf(a), __frcp_rn(a), __fsqrt_rn(a),
                           __fdividef(1.0f, a), __fmaf_rn(a, a, 0.5f), __saturatef(a), __powf(a, 1.5f), __sinf(a),
                           tanhf(a), max(a, 1.0f), fminf(a, NAN), __fmul_rn(a, a) - a * a * 0.0f};
        for (int k = 0; k < 16; ++k) out[k * n + i] = r[k];
    }
}
extern "C" __global__ void bits(int* out)
{
    const int results[] = {
        __popc(0xf0f01u), __popcll(0xf0f0100000000ull), __clz(1), __clz(0), __clzll(1ll << 40), __ffs(8), __ffs(0),
        __ffsll(1ll << 35), int(__brev(1u)), int(__byte_perm(0x33221100, 0x77665544, 0x7531)),
        int(__funnelshift_l(0x80000000u, 1u, 1)), int(__funnelshift_r(1u, 3u, 1)), int(__umulhi(0x80000000u, 6u)),
        __mulhi(-2, 1), __mul24(-3, 5), int(__sad(3, -4, 10)), __dp4a(0x01020304, 0x01010101, 5),
        __float_as_int(1.0f), int(__int_as_float(0x40400000)), int(__float_as_uint(-0.0f) >> 31),
        int(__longlong_as_double(0x4010000000000000ll)), int(__double_as_longlong(1.0) >> 52),
        __float2int_rn(2.5f), __float2int_rz(-2.7f), __float2int_ru(2.1f), __float2int_rd(-2.1f),
        int(__uint2float_rn(7u)), __half2int_rn(__float2half(3.5f)), min(-1, 3), int(max(-1, 3u)), __float2int_rn(3.5f),
    };
    for (int i = 0; i < int(sizeof results / sizeof *results); ++i) out[i] = results[i];
}
extern "C" __global__ void vectors(float* out, const float* x)
{
    const float4 a = __ldg(reinterpret_cast<const float4*>(x));
    const int4 b = make_int4(1, 2, 3, 4);
    const uint4 c = __ldcg(reinterpret_cast<const uint4*>(x) + 1);
    float2 d = __ldcs(reinterpret_cast<const float2*>(x) + 4);
    d.x += b.x + b.w;
    __stcs(out, a.x + a.w);
    __stcg(out + 1, __uint_as_float(c.y));
    __stwt(reinterpret_cast<float2*>(out) + 1, d);
    const dim3 size(3, 4);
    out[4] = size.x * size.y * size.z + make_uint3(7, 8, 9).z;
    __threadfence();
    __threadfence_block();
    const long long start = clock64();
    out[5] = clock64() >= start && __cvta_generic_to_shared(out) == reinterpret_cast<size_t>(out);
}
"""

half, bfloat = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def round_exactly(value: Fraction, dtype: np.dtype[Any]) -> float:
    """Nearest number of the dtype, ties to even; for values in its normal range."""
    bits, least = (10, -14) if dtype == half else (7, -126)
    exponent = max(value.numerator.bit_length() - value.denominator.bit_length(), least)
    if exponent > least and abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - bits)
    return float(round(value / unit) * unit)


def operands(dtype: np.dtype[Any], n: int = 4000) -> list[NDArray[Any]]:
    generator = np.random.default_rng(3)
    scale = np.exp2(generator.integers(-5, 5, size=(3, n)))
    a, b, c = (generator.normal(size=(3, n)) * scale).astype(dtype)
    # Products that are ties of the type, and addends too small for float (fp16) or double (bf16) to see: these decide.
    a[:8], b[:8], tiny = (3, 683 / 2048, 2.0**-24) if dtype == half else (7, 37 / 256, 2.0**-60)
    c[:8:2], c[1:8:2] = tiny, -tiny
    a[4:8] *= -1
    return [a, b, c]


@pytest.mark.parametrize(("kernel", "dtype"), [("half_binary", half), ("bfloat_binary", bfloat)])
def test_arithmetic_rounds_once(kernel: str, dtype: np.dtype[Any]) -> None:
    a, b, c = operands(dtype)
    n = a.size
    arrays = {"out": np.zeros((9, n), dtype), "a": a, "b": b, "c": c}
    out = run(CODE, kernel, arrays, n, block=(64, 1, 1))["out"]
    with np.errstate(over="ignore"):
        for row, expected in enumerate((a + b, a - b, a * b, a / b)):
            np.testing.assert_array_equal(out[row], expected)
    x, y, z = (array.astype(np.float64) for array in (a, b, c))
    exact = [Fraction(p) * Fraction(q) + Fraction(r) for p, q, r in zip(x, y, z, strict=True)]
    fused = np.array([round_exactly(value, dtype) for value in exact])
    np.testing.assert_array_equal(out[4].astype(np.float64), fused)
    np.testing.assert_array_equal(out[5], a * b + c)
    np.testing.assert_array_equal(out[6], np.maximum(a, b))
    with np.errstate(over="ignore"):
        expected_exp = np.exp(z).astype(dtype).astype(np.float64)
    np.testing.assert_allclose(out[7].astype(np.float64), expected_exp, rtol=epsilon(NAMES[dtype.name]))
    np.testing.assert_array_equal(out[8], np.sqrt(np.abs(x)).astype(dtype))


def test_every_half_widens_exactly() -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    out = run(CODE, "half_to_float", {"out": floats(3, x.size), "x": x}, x.size, block=(8, 1, 1))["out"]
    for row in out:
        np.testing.assert_array_equal(row, x.astype(np.float32))


def hard_floats() -> NDArray[np.float32]:
    generator = np.random.default_rng(0)
    random = generator.integers(0, 2**32, 50000, dtype=np.uint32).view(np.float32)
    halves = generator.integers(0, 2**16, 20000).astype(np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        beside = np.nextafter(halves, np.float32(np.inf))
        middle = (halves + np.nextafter(halves.astype(np.float16), np.float16(np.inf)).astype(np.float32)) / 2
    corners = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65519.9, 65520, 65504, 2**-25, 2**-24, 1e-8], np.float32)
    return np.concatenate([random, halves, beside, middle, np.nextafter(middle, np.float32(0)), corners])


def test_floats_narrow_to_half_in_every_rounding_mode() -> None:
    x = hard_floats()
    out = run(CODE, "half_from_float", {"out": np.zeros((6, x.size), half), "x": x}, x.size, block=(8, 1, 1))["out"]
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = x.astype(np.float16)
        down = np.where(nearest.astype(np.float32) > x, np.nextafter(nearest, np.float16(-np.inf)), nearest)
        up = np.where(nearest.astype(np.float32) < x, np.nextafter(nearest, np.float16(np.inf)), nearest)
    for row, expected in ((0, nearest), (1, nearest), (2, np.where(x > 0, down, up)), (3, up), (4, down), (5, nearest)):
        np.testing.assert_array_equal(out[row], expected)
        number = ~np.isnan(x)
        np.testing.assert_array_equal(np.signbit(out[row][number]), np.signbit(x[number]))


def test_floats_narrow_to_bfloat16() -> None:
    x = hard_floats()
    out = run(CODE, "bfloat_from_float", {"out": np.zeros(x.size, bfloat), "x": x}, x.size, block=(8, 1, 1))["out"]
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(out.astype(np.float32), x.astype(bfloat).astype(np.float32))


def test_math_functions() -> None:
    x = np.linspace(0.25, 6, 100, dtype=np.float32)
    out = run(CODE, "math", {"out": floats(16, 100), "x": x}, 100)["out"]
    a = x.astype(np.float64)
    expected: list[Any] = [
        np.exp(a), np.exp2(a), np.log(a), np.log2(a), a**-0.5, 1 / a, np.sqrt(a), 1 / a, a * a + 0.5, np.clip(a, 0, 1),
        a**1.5, np.sin(a), np.tanh(a), np.maximum(a, 1), a, a * a,
    ]  # fmt: skip
    np.testing.assert_allclose(out, expected, rtol=3e-7, atol=3e-7)


def test_bit_intrinsics() -> None:
    out = run(CODE, "bits", {"out": ints(31)}, block=(1, 1, 1))["out"]
    expected = [
        9, 9, 31, 32, 23, 4, 0, 36, -(2**31), 0x77553311, 3, -(2**31), 3, -1, -15, 17, 15, 0x3F800000, 3, 1, 4, 1023,
        2, -2, 3, -3, 7, 4, -1, -1, 4,
    ]  # fmt: skip
    np.testing.assert_array_equal(out, expected)


def test_vector_types_and_hinted_accesses() -> None:
    x = np.arange(1, 13, dtype=np.float32)
    out = run(CODE, "vectors", {"out": floats(6), "x": x}, block=(1, 1, 1))["out"]
    np.testing.assert_array_equal(out, [5, 6, 14, 10, 21, 1])
