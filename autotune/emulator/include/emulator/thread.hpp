// The emulated machine's state: a thread, its warp, its block.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

#include "context.hpp"

namespace emulator {

struct Block;
struct Stack;
struct Warp;
struct Worker;

// Where in the source a thread called something that may wait; shown when it waits for ever.
struct Place {
  const char* file;
  int line;

  // As a default argument: the place of the call. (The compiler resolves the built-ins at the outermost call.)
  static Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

#define EMULATOR_HERE ::emulator::Place::here()

enum class State : uint8_t { unstarted, ready, at_barrier, at_warp_operation, at_mbarrier, at_wgmma, gathering, done };

struct Thread {
  uint3 index;
  unsigned lane;
  Block* block;
  Warp* warp;
  Stack* stack;  // while started
  Thread* next;  // in the queue it waits in
  State state;
  const char* waits_in;  // "__syncthreads"
  uint32_t waits_mask;   // of a warp operation; result of a gathering; number and parity of an mbarrier
  Place place;
#ifdef EMULATOR_TRACE
  const void* pc;  // where it called what it waits in
#endif
};

// What fills memory and variables that nobody has written, byte by byte. In the first of three runs NaN, whatever the type.
// Some kernels compute again what comes out as NaN, and right. In the others it is a number, so that what was left unwritten
// stays wrong: first 3 in fp32 and bf16, 2.1 in fp16, which as a part of a score overflows nowhere (what does is computed
// again, too), then 785 and 4.3, which as a maximum hides every score.
inline unsigned char garbage_of(uint64_t order_seed) {
  constexpr unsigned char garbage[] = {0xff, 0x40, 0x44};
  return garbage[order_seed % 3];
}

// A permutation of `count` numbers that a seed picks; seed 0 picks the identity.
struct Order {
  uint64_t step, shift, count;

  static Order make(uint64_t seed, uint64_t count) {
    Order order{1, 0, count};
    if (seed == 0 || count < 2) return order;
    uint64_t mixed = (seed + count) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
    order.shift = (mixed >> 20) % count;
    order.step = (mixed & 0xfffff) % count + 1;
    while (gcd(order.step, count) != 1) ++order.step;
    return order;
  }
  uint64_t operator[](uint64_t place) const { return (place % count * step + shift) % count; }

 private:
  static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
      uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }
};

// First in, first out.
struct Queue {
  Thread* first;
  Thread* last;

  void push(Thread* thread) {
    thread->next = nullptr;
    (first ? last->next : first) = thread;
    last = thread;
  }
  Thread* pop() {
    Thread* thread = first;
    if (thread) first = thread->next;
    return thread;
  }
  void take_all(Queue& other) {
    if (!other.first) return;
    (first ? last->next : first) = other.first;
    last = other.last;
    other.first = nullptr;
  }
};

// `bar.sync`: barrier 0 is __syncthreads. The accumulators serve __syncthreads_count, _and, _or.
struct Barrier {
  Queue waiting;
  unsigned arrived;
  unsigned expected;  // threads; 0: every thread that has not exited
  int count, all, any;
  int last_count, last_all, last_any;  // of the last completed phase
  uint32_t lanes[32];  // of each warp: who has arrived in this phase, where `expected` is given
};

// Combines what the lanes of a warp operation brought: `items[lane]` points at what a lane brought, for lanes in `lanes`.
using Combine = void (*)(void* const items[32], uint32_t lanes);

struct WarpOperation {
  uint32_t mask;     // lanes named by the call; 0: the slot is free
  uint32_t arrived;
  Combine combine;
  const char* name;
};

struct Warp {
  Thread* threads;     // of lane 0
  uint32_t exited;     // lanes that have returned or never existed
  unsigned pending;    // slots in use lie below this
  WarpOperation operations[32];
  void* items[32];
};

using Kernel = void (*)(const void* arguments);

struct Block {
  uint3 index;
  dim3 dim, grid, cluster;
  unsigned threads_total;
  unsigned threads_started;
  Order warp_order, lane_order;  // in which they are started
  unsigned threads_alive;
  Thread* threads;
  Warp* warps;
  unsigned warps_total;
  Queue ready;
  Queue gathering;  // threads in __activemask
  Barrier barriers[16];
  unsigned barriers_waited_at;  // bit mask
  unsigned char garbage;  // every byte of what nobody has written: see `garbage_of`
  unsigned char* shared;  // dynamic shared memory
  size_t shared_bytes;
  Kernel kernel;
  const void* arguments;
  Worker* worker;
  Thread** current;  // the OS thread's `emulator::current`: looking that up costs a call
  unsigned polls;  // atomic operations that may be part of a waiting loop
  unsigned yields;
};

extern __thread Thread* current __attribute__((visibility("hidden")));

inline Thread& self() { return *current; }

// Start of the block's dynamic shared memory: what `extern __shared__` declarations become.
inline unsigned char* dynamic_shared() { return self().block->shared; }

// Ends the launch with a message; does not return.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Lets the block's other threads go on: for loops that wait for another thread.
void yield();

// The calling thread has put itself into some queue: others go on until it is taken out again.
void suspend(Thread& thread);

}  // namespace emulator
