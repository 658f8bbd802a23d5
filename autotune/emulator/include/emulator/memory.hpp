// Loads and stores with cache hints (plain ones here), fences, address spaces, clocks, traps.
#pragma once

#include <stdint.h>
#include <string.h>
#include <time.h>
#include <limits>
#include <type_traits>

#include "thread.hpp"

#define EMULATOR_LOAD(name) \
  template <class T> inline T name(const T* address) { return *address; }
EMULATOR_LOAD(__ldg)
EMULATOR_LOAD(__ldca)
EMULATOR_LOAD(__ldcg)
EMULATOR_LOAD(__ldcs)
EMULATOR_LOAD(__ldcv)
EMULATOR_LOAD(__ldlu)
#undef EMULATOR_LOAD

namespace emulator {
// What a variable holds that was declared without a value (see `unset_variables`): the block's garbage. What counts with a
// sign is -1 or, in every second thread, the largest number: hardly any use takes both for something right.
template <class T> inline __attribute__((always_inline)) void unset(T& variable) {
  using Element = std::remove_all_extents_t<T>;
  constexpr bool counts = std::is_integral_v<Element> && std::is_signed_v<Element>;
  __builtin_memset(static_cast<void*>(&variable), counts ? 0xff : self().block->garbage, sizeof variable);
  if constexpr (counts) {
    if (self().index.x % 2 == 0) return;
    for (size_t i = 0; i < sizeof variable / sizeof(Element); ++i)
      reinterpret_cast<Element*>(&variable)[i] = std::numeric_limits<Element>::max();
  }
}
template <class T> struct Same { using type = T; };  // a parameter of this type takes no part in deduction
}

#define EMULATOR_STORE(name) \
  template <class T> inline void name(T* address, typename emulator::Same<T>::type value) { *address = value; }
EMULATOR_STORE(__stcg)
EMULATOR_STORE(__stcs)
EMULATOR_STORE(__stwb)
EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { emulator::yield(); }

// One address space: every pointer is generic.
inline size_t __cvta_generic_to_shared(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline size_t __cvta_generic_to_global(const void* pointer) { return reinterpret_cast<size_t>(pointer); }
inline void* __cvta_shared_to_generic(size_t address) { return reinterpret_cast<void*>(address); }

inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

inline void __trap(emulator::Place place = EMULATOR_HERE) {
  emulator::fail("trap executed at %s:%d", place.file, place.line);
}
inline void __brkpt() {}
inline void __prof_trigger(int) {}
#define __builtin_assume(condition) \
  do {                              \
    if (!(condition)) __builtin_unreachable(); \
  } while (0)
#define __assume(condition) __builtin_assume(condition)
