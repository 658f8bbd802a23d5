// Integer intrinsics and reinterpretations.
#pragma once

#include <stdint.h>
#include <string.h>

namespace emulator {

template <class To, class From>
inline To reinterpret(From value) {
  static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}

template <class T>
inline T reverse_bits(T value) {
  T result = 0;
  for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit) result |= (value >> bit & 1) << (8 * sizeof(T) - 1 - bit);
  return result;
}

}  // namespace emulator

inline int __float_as_int(float x) { return emulator::reinterpret<int>(x); }
inline unsigned __float_as_uint(float x) { return emulator::reinterpret<unsigned>(x); }
inline float __int_as_float(int x) { return emulator::reinterpret<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::reinterpret<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::reinterpret<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::reinterpret<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(static_cast<uint64_t>(high) << 32 | static_cast<uint32_t>(low)));
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) { return emulator::reverse_bits(x); }
inline unsigned long long __brevll(unsigned long long x) { return emulator::reverse_bits(x); }

inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned choice = selector >> 4 * i & 15;
    unsigned byte = bytes >> 8 * (choice & 7) & 255;
    if (choice & 8) byte = byte & 128 ? 255 : 0;  // the sign bit of the byte, replicated
    result |= byte << 8 * i;
  }
  return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline unsigned __sad(int a, int b, unsigned c) { return (a > b ? static_cast<unsigned>(a) - b : static_cast<unsigned>(b) - a) + c; }
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> 8 * i) * static_cast<int8_t>(b >> 8 * i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += static_cast<uint8_t>(a >> 8 * i) * static_cast<uint8_t>(b >> 8 * i);
  return c;
}
