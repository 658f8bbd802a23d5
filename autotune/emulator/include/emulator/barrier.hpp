// Barriers of a block.
#pragma once

#include "thread.hpp"

namespace emulator {

// Waits until all of `threads` (0: every thread of the block that has not exited) have arrived at barrier `id`.
Barrier& wait_at_barrier(unsigned id, unsigned threads, int predicate, const char* name, Place place);

// `bar.arrive`: counts this thread and goes on.
void arrive_at_barrier(unsigned id, unsigned threads, Place place);

// `bar.sync id, threads`, for the emulated twins of named barriers.
inline void named_barrier(unsigned id, unsigned threads, Place place = EMULATOR_HERE) {
  wait_at_barrier(id, threads, 0, "bar.sync", place);
}

// `bar.arrive id, threads`.
inline void named_barrier_arrive(unsigned id, unsigned threads, Place place = EMULATOR_HERE) {
  arrive_at_barrier(id, threads, place);
}

}  // namespace emulator

inline void __syncthreads(emulator::Place place = EMULATOR_HERE) {
  emulator::wait_at_barrier(0, 0, 0, "__syncthreads", place);
}
inline int __syncthreads_count(int predicate, emulator::Place place = EMULATOR_HERE) {
  return emulator::wait_at_barrier(0, 0, predicate, "__syncthreads_count", place).last_count;
}
inline int __syncthreads_and(int predicate, emulator::Place place = EMULATOR_HERE) {
  return emulator::wait_at_barrier(0, 0, predicate, "__syncthreads_and", place).last_all;
}
inline int __syncthreads_or(int predicate, emulator::Place place = EMULATOR_HERE) {
  return emulator::wait_at_barrier(0, 0, predicate, "__syncthreads_or", place).last_any;
}
