// CUDA's math functions that a host's <math.h> lacks. The fast ones (`__expf`) are as accurate here as the slow ones.
#pragma once

#include <math.h>
#include <stdlib.h>

#define EMULATOR_MIN_MAX(T)                              \
  inline T min(T a, T b) { return b < a ? b : a; }       \
  inline T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)
#undef EMULATOR_MIN_MAX

// A NaN loses against a number, as on the device.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#define EMULATOR_MIXED(A, B, T)                                                            \
  inline T min(A a, B b) { return min(static_cast<T>(a), static_cast<T>(b)); }             \
  inline T max(A a, B b) { return max(static_cast<T>(a), static_cast<T>(b)); }             \
  inline T min(B a, A b) { return min(static_cast<T>(a), static_cast<T>(b)); }             \
  inline T max(B a, A b) { return max(static_cast<T>(a), static_cast<T>(b)); }
EMULATOR_MIXED(int, unsigned, unsigned)
EMULATOR_MIXED(long, unsigned long, unsigned long)
EMULATOR_MIXED(long long, unsigned long long, unsigned long long)
EMULATOR_MIXED(float, double, double)
#undef EMULATOR_MIXED

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * x)); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * x)); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// Each of these rounds once: the compiler must not fuse a product with a sum that uses it.
inline float __fmul_rn(float a, float b) {
  float product = a * b;
  asm("" : "+m"(product));
  return product;
}
inline double __dmul_rn(double a, double b) {
  double product = a * b;
  asm("" : "+m"(product));
  return product;
}
inline float __fadd_rn(float a, float b) {
  asm("" : "+m"(a), "+m"(b));
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  asm("" : "+m"(a), "+m"(b));
  return a - b;
}
inline double __dadd_rn(double a, double b) {
  asm("" : "+m"(a), "+m"(b));
  return a + b;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

#define EMULATOR_CONVERT(type, name)                                                           \
  inline type __float2##name##_rn(float x) { return static_cast<type>(rintf(x)); }             \
  inline type __float2##name##_rz(float x) { return static_cast<type>(truncf(x)); }            \
  inline type __float2##name##_ru(float x) { return static_cast<type>(ceilf(x)); }             \
  inline type __float2##name##_rd(float x) { return static_cast<type>(floorf(x)); }            \
  inline float __##name##2float_rn(type x) { return static_cast<float>(x); }
EMULATOR_CONVERT(int, int)
EMULATOR_CONVERT(unsigned, uint)
EMULATOR_CONVERT(long long, ll)
EMULATOR_CONVERT(unsigned long long, ull)
#undef EMULATOR_CONVERT
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __double2int_rn(double x) { return static_cast<int>(rint(x)); }
inline int __double2int_rz(double x) { return static_cast<int>(x); }
