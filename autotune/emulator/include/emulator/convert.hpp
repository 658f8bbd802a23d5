// Conversions between float and fp16 by the processor's own instructions where it has them.
//
// The CUDA headers convert bit by bit on a host. Their host code calls `__internal_half2float` and
// `__internal_float2half`; `half.hpp` lets these calls find the functions below, which give the same values.
#pragma once

#include <stdint.h>
#include <string.h>

namespace emulator::convert {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

#if defined(__F16C__)
typedef short Half8 __attribute__((vector_size(16)));
typedef float Float4 __attribute__((vector_size(16)));
inline float widen(unsigned short half) {
  return __builtin_ia32_vcvtph2ps(Half8{static_cast<short>(half), 0, 0, 0, 0, 0, 0, 0})[0];
}
inline unsigned short nearest(float value) {
  return static_cast<unsigned short>(__builtin_ia32_vcvtps2ph(Float4{value, 0, 0, 0}, 0)[0]);
}
inline unsigned short toward_zero(float value) {
  return static_cast<unsigned short>(__builtin_ia32_vcvtps2ph(Float4{value, 0, 0, 0}, 3)[0]);
}
#define EMULATOR_HARDWARE_HALF 1
#elif defined(__aarch64__)
inline float widen(unsigned short half) {
  __fp16 value;
  memcpy(&value, &half, 2);
  return value;
}
inline unsigned short nearest(float value) {
  __fp16 half = static_cast<__fp16>(value);
  unsigned short bits;
  memcpy(&bits, &half, 2);
  return bits;
}
inline unsigned short toward_zero(float value) {
  unsigned short bits = nearest(value);
  float magnitude = value < 0 ? -value : value;
  return widen(bits & 0x7fffu) > magnitude ? bits - 1 : bits;
}
#define EMULATOR_HARDWARE_HALF 1
#endif

#ifdef EMULATOR_HARDWARE_HALF
inline float __internal_half2float(unsigned short half) { return widen(half); }

// The headers want the value rounded toward zero and the part cut off, as a fraction of 2^32 of the last place: its
// size only matters against one half, which is what the two rounded values tell. Ties are decided here already.
inline unsigned short __internal_float2half(float value, unsigned& sign, unsigned& remainder) {
  sign = bits_of(value) >> 16 & 0x8000u;
  remainder = 0;
  if (value != value) return 0x7fff;
  unsigned short down = toward_zero(value);
  if (widen(down) != value) remainder = nearest(value) == down ? 1u : 0xffffffffu;
  return down;
}
#endif

}  // namespace emulator::convert
