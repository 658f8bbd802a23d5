// Atomic operations, atomic between the OS threads that run blocks.
#pragma once

#include <stdint.h>
#include <string.h>

#include "half.hpp"
#include "thread.hpp"
#include "trace.hpp"

namespace emulator::atomic {

template <size_t bytes> struct Bits;
template <> struct Bits<2> { using type = uint16_t; };
template <> struct Bits<4> { using type = uint32_t; };
template <> struct Bits<8> { using type = uint64_t; };

// Replaces *address by update(*address) in one step; returns the old value.
template <class T, class F>
inline T update(T* address, F function) {
  using B = typename Bits<sizeof(T)>::type;
  B* bits = reinterpret_cast<B*>(address);
  B old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    T before;
    memcpy(static_cast<void*>(&before), &old, sizeof(T));
    T after = function(before);
    B desired;
    memcpy(&desired, &after, sizeof(T));
    if (__atomic_compare_exchange_n(bits, &old, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return before;
  }
}

// A thread that polls with an atomic operation must let the block's other threads go on at times.
inline void polled() {
  if ((++self().block->polls & 255) == 0) yield();
}

template <class T>
inline T exchange(T* address, T value) {
  using B = typename Bits<sizeof(T)>::type;
  B bits;
  memcpy(&bits, &value, sizeof(T));
  bits = __atomic_exchange_n(reinterpret_cast<B*>(address), bits, __ATOMIC_SEQ_CST);
  memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  polled();
  return value;
}

template <class T>
inline T compare_and_swap(T* address, T compare, T value) {
  __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  polled();
  return compare;
}

template <class T> inline T add(T* address, T value) {
  T old = __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
  if (value == 0) polled();
  return old;
}

}  // namespace emulator::atomic

#define EMULATOR_SCOPES(name, parameters, type, ...)                         \
  inline type name parameters { return __VA_ARGS__; }                        \
  inline type name##_block parameters { return __VA_ARGS__; }                \
  inline type name##_system parameters { return __VA_ARGS__; }

#define EMULATOR_ATOMIC_INTEGER(T)                                                                                   \
  EMULATOR_SCOPES(atomicAdd, (T * address, T value), T, emulator::atomic::add(address, value))                       \
  EMULATOR_SCOPES(atomicSub, (T * address, T value), T, __atomic_fetch_sub(address, value, __ATOMIC_SEQ_CST))        \
  EMULATOR_SCOPES(atomicAnd, (T * address, T value), T, __atomic_fetch_and(address, value, __ATOMIC_SEQ_CST))        \
  EMULATOR_SCOPES(atomicOr, (T * address, T value), T, __atomic_fetch_or(address, value, __ATOMIC_SEQ_CST))          \
  EMULATOR_SCOPES(atomicXor, (T * address, T value), T, __atomic_fetch_xor(address, value, __ATOMIC_SEQ_CST))        \
  EMULATOR_SCOPES(atomicExch, (T * address, T value), T, emulator::atomic::exchange(address, value))                 \
  EMULATOR_SCOPES(                                                                                                   \
      atomicCAS, (T * address, T compare, T value), T, emulator::atomic::compare_and_swap(address, compare, value))  \
  EMULATOR_SCOPES(atomicMin, (T * address, T value), T,                                                              \
                  emulator::atomic::update(address, [=](T old) { return value < old ? value : old; }))               \
  EMULATOR_SCOPES(atomicMax, (T * address, T value), T,                                                              \
                  emulator::atomic::update(address, [=](T old) { return old < value ? value : old; }))

EMULATOR_ATOMIC_INTEGER(int)
EMULATOR_ATOMIC_INTEGER(unsigned)
EMULATOR_ATOMIC_INTEGER(long long)
EMULATOR_ATOMIC_INTEGER(unsigned long long)
#undef EMULATOR_ATOMIC_INTEGER

EMULATOR_SCOPES(
    atomicCAS, (unsigned short* address, unsigned short compare, unsigned short value), unsigned short,
    emulator::atomic::compare_and_swap(address, compare, value))
EMULATOR_SCOPES(atomicInc, (unsigned* address, unsigned limit), unsigned,
                emulator::atomic::update(address, [=](unsigned old) { return old >= limit ? 0 : old + 1; }))
EMULATOR_SCOPES(atomicDec, (unsigned* address, unsigned limit), unsigned,
                emulator::atomic::update(address, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1; }))
EMULATOR_SCOPES(atomicExch, (float* address, float value), float, emulator::atomic::exchange(address, value))

#define EMULATOR_ATOMIC_ADD(T, sum) \
  EMULATOR_SCOPES(atomicAdd, (T * address, T value), T, emulator::atomic::update(address, [=](T old) { return sum; }))
EMULATOR_ATOMIC_ADD(float, old + value)
EMULATOR_ATOMIC_ADD(double, old + value)
EMULATOR_ATOMIC_ADD(__half, __hadd(old, value))
EMULATOR_ATOMIC_ADD(__nv_bfloat16, __hadd(old, value))
EMULATOR_ATOMIC_ADD(__half2, __hadd2(old, value))
EMULATOR_ATOMIC_ADD(__nv_bfloat162, __hadd2(old, value))
#undef EMULATOR_ATOMIC_ADD
#undef EMULATOR_SCOPES

// Vectors: each element by itself, as the hardware defines it.
inline float2 atomicAdd(float2* address, float2 value) {
  emulator::traced_atomic(address, sizeof(float2));
  [[maybe_unused]] emulator::Untraced elements;
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
inline float4 atomicAdd(float4* address, float4 value) {
  emulator::traced_atomic(address, sizeof(float4));
  [[maybe_unused]] emulator::Untraced elements;
  return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
          atomicAdd(&address->w, value.w)};
}
