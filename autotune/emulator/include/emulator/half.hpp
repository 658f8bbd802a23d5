// fp16 and bf16: the CUDA headers' own types, and the functions that the headers declare for device code only.
#pragma once

#include <nv/target>

#include "convert.hpp"

#ifdef EMULATOR_HARDWARE_HALF
// The headers write `NV_IF_ELSE_TARGET(condition, device code, host code)`. A declaration in the block's own scope
// hides the headers' global functions of the same names.
#pragma push_macro("NV_IF_ELSE_TARGET")
#undef NV_IF_ELSE_TARGET
#define NV_IF_ELSE_TARGET(condition, device, host)       \
  {                                                      \
    using ::emulator::convert::__internal_half2float;    \
    using ::emulator::convert::__internal_float2half;    \
    host                                                 \
  }
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#pragma pop_macro("NV_IF_ELSE_TARGET")
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <math.h>

namespace emulator {

// a*b + c rounded to odd at double precision, so that rounding once more to 16 bits is exact. The product of two 16-bit
// floats is exact in double; the sum's error comes from Knuth's two-sum.
inline double fused(double a, double b, double c) {
  double p = a * b;
  double sum = p + c;
  double back = sum - p;
  double error = (p - (sum - back)) + (c - back);
  if (error == 0 || error != error) return sum;
  uint64_t bits;
  memcpy(&bits, &sum, 8);
  if (bits & 1) return sum;
  bits += (error > 0) == (sum > 0) ? 1 : -1;
  memcpy(&sum, &bits, 8);
  return sum;
}

inline float saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

}  // namespace emulator

inline float emulator_to_float(__half a) { return __half2float(a); }
inline float emulator_to_float(__nv_bfloat16 a) { return __bfloat162float(a); }

// Everything below is the same for both types.
#define EMULATOR_UNARY(T, T2, narrow, name, expression)                      \
  inline T h##name(T a) {                                                    \
    float x = emulator_to_float(a);                                          \
    return narrow(static_cast<float>(expression));                           \
  }                                                                          \
  inline T2 h2##name(T2 a) { return T2(h##name(a.x), h##name(a.y)); }

#define EMULATOR_ROUNDED(T, name, type, suffix, rounding) \
  inline type __##name##2##suffix(T a) { return static_cast<type>(rounding(emulator_to_float(a))); }

#define EMULATOR_ROUNDED_ALL(T, name, type, suffix)        \
  EMULATOR_ROUNDED(T, name, type, suffix##_rn, rintf)      \
  EMULATOR_ROUNDED(T, name, type, suffix##_rd, floorf)     \
  EMULATOR_ROUNDED(T, name, type, suffix##_ru, ceilf)

#define EMULATOR_HALF_TYPE(T, T2, name, from_double, narrow)                                                     \
  inline T __hfma(T a, T b, T c) {                                                                               \
    return from_double(emulator::fused(emulator_to_float(a), emulator_to_float(b), emulator_to_float(c)));       \
  }                                                                                                              \
  inline T __hfma_sat(T a, T b, T c) { return narrow(emulator::saturate(emulator_to_float(__hfma(a, b, c)))); }  \
  inline T __hfma_relu(T a, T b, T c) {                                                                          \
    T r = __hfma(a, b, c);                                                                                       \
    return emulator_to_float(r) < 0 ? narrow(0.0f) : r;                                                          \
  }                                                                                                              \
  inline T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }               \
  inline T2 __hfma2_sat(T2 a, T2 b, T2 c) { return T2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); }   \
  inline T2 __hfma2_relu(T2 a, T2 b, T2 c) { return T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); } \
  EMULATOR_UNARY(T, T2, narrow, ceil, ceilf(x))                                                                  \
  EMULATOR_UNARY(T, T2, narrow, floor, floorf(x))                                                                \
  EMULATOR_UNARY(T, T2, narrow, rint, rintf(x))                                                                  \
  EMULATOR_UNARY(T, T2, narrow, trunc, truncf(x))                                                                \
  EMULATOR_UNARY(T, T2, narrow, exp, expf(x))                                                                    \
  EMULATOR_UNARY(T, T2, narrow, exp2, exp2f(x))                                                                  \
  EMULATOR_UNARY(T, T2, narrow, exp10, exp10(static_cast<double>(x)))                                            \
  EMULATOR_UNARY(T, T2, narrow, log, logf(x))                                                                    \
  EMULATOR_UNARY(T, T2, narrow, log2, log2f(x))                                                                  \
  EMULATOR_UNARY(T, T2, narrow, log10, log10f(x))                                                                \
  EMULATOR_UNARY(T, T2, narrow, sin, sinf(x))                                                                    \
  EMULATOR_UNARY(T, T2, narrow, cos, cosf(x))                                                                    \
  EMULATOR_UNARY(T, T2, narrow, tanh, tanhf(x))                                                                  \
  EMULATOR_UNARY(T, T2, narrow, tanh_approx, tanhf(x))                                                           \
  EMULATOR_UNARY(T, T2, narrow, sqrt, sqrtf(x))                                                                  \
  EMULATOR_UNARY(T, T2, narrow, rsqrt, 1.0 / sqrt(static_cast<double>(x)))                                       \
  EMULATOR_UNARY(T, T2, narrow, rcp, 1.0 / static_cast<double>(x))                                               \
  EMULATOR_ROUNDED_ALL(T, name, int, int)                                                                        \
  EMULATOR_ROUNDED_ALL(T, name, unsigned, uint)                                                                  \
  EMULATOR_ROUNDED_ALL(T, name, short, short)                                                                    \
  EMULATOR_ROUNDED_ALL(T, name, unsigned short, ushort)                                                          \
  EMULATOR_ROUNDED_ALL(T, name, long long, ll)                                                                   \
  EMULATOR_ROUNDED_ALL(T, name, unsigned long long, ull)

EMULATOR_HALF_TYPE(__half, __half2, half, __double2half, __float2half)
EMULATOR_HALF_TYPE(__nv_bfloat16, __nv_bfloat162, bfloat16, __double2bfloat16, __float2bfloat16)
#undef EMULATOR_HALF_TYPE
#undef EMULATOR_ROUNDED_ALL
#undef EMULATOR_ROUNDED
#undef EMULATOR_UNARY
