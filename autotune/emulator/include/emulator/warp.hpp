// Operations of a warp: every lane named by the mask brings a value, the last one to arrive computes everyone's result.
#pragma once

#include <string.h>

#include "thread.hpp"
#include "trace.hpp"

namespace emulator {

// Waits until every lane of `mask` that has not exited calls the same operation; the last to arrive runs `combine`.
// `item` is this lane's own object: its input before, its result afterwards. It may lie on the caller's stack.
void warp_operation(uint32_t mask, void* item, Combine combine, const char* name, Place place);

uint32_t active_lanes(Place place);

namespace shuffle {

struct Item {
  uint64_t value;
  uint64_t result;
  uint32_t source;  // lane to read
};

void combine(void* const items[32], uint32_t lanes);

// A lane's segment: the `width` lanes that it may read.
inline uint32_t segment_start(uint32_t lane, int width) { return lane & ~static_cast<uint32_t>(width - 1); }

template <class T>
inline T exchange(uint32_t mask, T value, uint32_t source, const char* name, Place place) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 64 bits");
  Item item{0, 0, source};
  memcpy(static_cast<void*>(&item.value), &value, sizeof(T));
  warp_operation(mask, &item, combine, name, place);
  T result;
  memcpy(static_cast<void*>(&result), &item.result, sizeof(T));
  return result;
}

}  // namespace shuffle

namespace vote {

struct Item {
  uint64_t value;
  uint32_t result;
};

void ballot(void* const items[32], uint32_t lanes);
void match_any(void* const items[32], uint32_t lanes);

inline uint32_t ask(uint32_t mask, uint64_t value, Combine combine, const char* name, Place place) {
  Item item{value, 0};
  warp_operation(mask, &item, combine, name, place);
  return item.result;
}

template <class T>
inline uint64_t bits(T value) {
  static_assert(sizeof(T) <= 8, "a match compares at most 64 bits");
  uint64_t result = 0;
  memcpy(&result, &value, sizeof(T));
  return result;
}

}  // namespace vote

namespace reduction {

template <class T, class F>
void combine(void* const items[32], uint32_t lanes) {
  T total{};
  bool first = true;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    T value = *static_cast<T*>(items[__builtin_ctz(rest)]);
    total = first ? value : F{}(total, value);
    first = false;
  }
  for (uint32_t rest = lanes; rest; rest &= rest - 1) *static_cast<T*>(items[__builtin_ctz(rest)]) = total;
}

template <class F, class T>
inline T reduce(uint32_t mask, T value, const char* name, Place place) {
  warp_operation(mask, &value, combine<T, F>, name, place);
  return value;
}

struct Add { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Min { template <class T> T operator()(T a, T b) const { return b < a ? b : a; } };
struct Max { template <class T> T operator()(T a, T b) const { return a < b ? b : a; } };
struct And { template <class T> T operator()(T a, T b) const { return a & b; } };
struct Or { template <class T> T operator()(T a, T b) const { return a | b; } };
struct Xor { template <class T> T operator()(T a, T b) const { return a ^ b; } };

}  // namespace reduction
}  // namespace emulator

inline void __syncwarp(unsigned mask = 0xffffffffu, emulator::Place place = EMULATOR_HERE) {
  emulator::warp_operation(mask, nullptr, nullptr, "__syncwarp", place);
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulator::Place place = EMULATOR_HERE) {
  uint32_t from = emulator::shuffle::segment_start(emulator::self().lane, width) + (source & (width - 1));
  return emulator::shuffle::exchange(mask, value, from, "__shfl_sync", place);
}

template <class T>
inline T __shfl_up_sync(
    unsigned mask, T value, unsigned delta, int width = 32, emulator::Place place = EMULATOR_HERE) {
  uint32_t lane = emulator::self().lane;
  uint32_t from = lane >= emulator::shuffle::segment_start(lane, width) + delta ? lane - delta : lane;
  return emulator::shuffle::exchange(mask, value, from, "__shfl_up_sync", place);
}

template <class T>
inline T __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = 32, emulator::Place place = EMULATOR_HERE) {
  uint32_t lane = emulator::self().lane;
  uint32_t from = lane + delta < emulator::shuffle::segment_start(lane, width) + width ? lane + delta : lane;
  return emulator::shuffle::exchange(mask, value, from, "__shfl_down_sync", place);
}

template <class T>
inline T __shfl_xor_sync(
    unsigned mask, T value, int lane_mask, int width = 32, emulator::Place place = EMULATOR_HERE) {
  uint32_t lane = emulator::self().lane;
  uint32_t from = lane ^ lane_mask;
  // A lane may read from lower segments but not from higher ones, as the hardware defines it.
  if (from >= emulator::shuffle::segment_start(lane, width) + width) from = lane;
  return emulator::shuffle::exchange(mask, value, from, "__shfl_xor_sync", place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, emulator::Place place = EMULATOR_HERE) {
  return emulator::vote::ask(mask, predicate != 0, emulator::vote::ballot, "__ballot_sync", place);
}
inline int __any_sync(unsigned mask, int predicate, emulator::Place place = EMULATOR_HERE) {
  return emulator::vote::ask(mask, predicate != 0, emulator::vote::ballot, "__any_sync", place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulator::Place place = EMULATOR_HERE) {
  return emulator::vote::ask(mask, predicate == 0, emulator::vote::ballot, "__all_sync", place) == 0;
}
inline int __uni_sync(unsigned mask, int predicate, emulator::Place place = EMULATOR_HERE) {
  uint32_t same = emulator::vote::ask(mask, predicate != 0, emulator::vote::match_any, "__uni_sync", place);
  return same == (mask & ~emulator::self().warp->exited);
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, emulator::Place place = EMULATOR_HERE) {
  uint64_t bits = emulator::vote::bits(value);
  return emulator::vote::ask(mask, bits, emulator::vote::match_any, "__match_any_sync", place);
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, emulator::Place place = EMULATOR_HERE) {
  uint64_t bits = emulator::vote::bits(value);
  uint32_t same = emulator::vote::ask(mask, bits, emulator::vote::match_any, "__match_all_sync", place);
  *predicate = same == (mask & ~emulator::self().warp->exited);
  return *predicate ? same : 0;
}

#define EMULATOR_REDUCE(name, functor, type)                                                \
  inline type name(unsigned mask, type value, emulator::Place place = EMULATOR_HERE) {      \
    return emulator::reduction::reduce<emulator::reduction::functor>(mask, value, #name, place); \
  }
EMULATOR_REDUCE(__reduce_add_sync, Add, unsigned)
EMULATOR_REDUCE(__reduce_add_sync, Add, int)
EMULATOR_REDUCE(__reduce_min_sync, Min, unsigned)
EMULATOR_REDUCE(__reduce_min_sync, Min, int)
EMULATOR_REDUCE(__reduce_max_sync, Max, unsigned)
EMULATOR_REDUCE(__reduce_max_sync, Max, int)
EMULATOR_REDUCE(__reduce_and_sync, And, unsigned)
EMULATOR_REDUCE(__reduce_or_sync, Or, unsigned)
EMULATOR_REDUCE(__reduce_xor_sync, Xor, unsigned)
#undef EMULATOR_REDUCE

// The lanes of the warp that stand at this very call when no thread of the block can go on without them: as far as lanes
// can converge, they do.
inline unsigned __activemask(emulator::Place place = EMULATOR_HERE) { return emulator::active_lanes(place); }

namespace emulator {

inline uint32_t lane_id() { return self().lane; }

// For the emulated twins of warp-wide instructions (mma, ldmatrix): the last lane to arrive calls `compute(items, lanes)`
// with a pointer to each lane's item. A missing lane's pointer is null.
template <class T, void (*compute)(T* const items[32])>
inline void warp_compute(T& item, const char* name, Place place = EMULATOR_HERE) {
  warp_operation(
      0xffffffffu, &item,
      [](void* const items[32], uint32_t lanes) {
        [[maybe_unused]] Untraced computing_for_others;
        T* typed[32];
        for (int lane = 0; lane < 32; ++lane) typed[lane] = lanes >> lane & 1 ? static_cast<T*>(items[lane]) : nullptr;
        compute(typed);
      },
      name, place);
}

}  // namespace emulator
