// What a block's asynchronous instructions have under way: mbarriers, TMA's copies, wgmma's products.
#pragma once

#include <stdint.h>

#include <deque>
#include <memory>
#include <vector>

#include "emulator/tensor_map.hpp"
#include "emulator/thread.hpp"
#include "emulator/warp_group.hpp"

namespace emulator {

struct Mbarrier {
  uintptr_t address;
  unsigned arrivals;      // of a phase
  unsigned missing;       // arrivals, in this phase
  int64_t bytes;          // that copies owe this phase; negative: they brought more than was expected
  uint64_t phase;
  Queue waiting;
  const Thread* made_by;
  bool is_fenced;         // its making is known to copies
};

// A box of a tensor, or a run of bytes.
struct Region {
  TensorMapContent map;   // of rank 0: none
  int at[5];
  unsigned char* start;
  unsigned bytes;         // in shared memory
};

struct Load {
  Region from;
  uintptr_t to;
  unsigned barrier;       // its number
  Thread* by;
};

struct Store {
  Region to;
  uintptr_t from;
  bool adds;
  bool is_read;
  std::vector<unsigned char> content;  // once read
  const void* pc;
};

using StoreGroup = std::vector<Store>;

// A thread's accumulators while products that change them are under way.
struct Accumulators {
  float* d;
  std::unique_ptr<float[]> values;
  unsigned count;
  uint64_t last;          // number of the last product that changes them
};

// One wgmma of a warp group.
struct Product {
  WgmmaShape shape;
  bool from_registers, accumulate;
  uint64_t a, b;
  unsigned issued = 0;    // threads
  float* d[128];          // the threads' `Accumulators::values`
  uint32_t registers[128][4];
  const void* pc;
};

// A thread's view of its group's products. Products and groups count from 0.
struct WgmmaThread {
  uint64_t issued = 0;
  std::vector<uint64_t> groups;   // by group of the thread: products before its end
  std::vector<Accumulators> under_way;
  bool is_fenced = false;         // since it last waited for products
};

struct WarpGroup {
  std::deque<Product> products;   // those that have not been computed in every thread's sight
  uint64_t first = 0;             // number of products[0]
  uint64_t computed = 0;
  Queue waiting;
};

struct Asynchronous {
  std::vector<Mbarrier> barriers;
  std::deque<Load> loads;                          // oldest first
  std::vector<std::vector<StoreGroup>> stores;     // by thread, oldest group first; the last one is open
  std::vector<WgmmaThread> wgmma;                  // by thread
  std::vector<WarpGroup> groups;                   // by warp group
  std::vector<unsigned> registers;                 // by warp; 0: as the compiler chose
};

// The running block's; made when it is first asked for.
Asynchronous& asynchronous(Block& block);
inline Asynchronous& asynchronous() { return asynchronous(*self().block); }

// Ends the launch with a message about the instruction that the running thread executes.
#ifdef EMULATOR_TRACE
#define EMULATOR_CALLED_FROM_HERE (self().pc = __builtin_return_address(0))
[[noreturn]] void fail_here(const char* format, ...) __attribute__((format(printf, 1, 2)));
#else
#define EMULATOR_CALLED_FROM_HERE static_cast<void>(0)
#define fail_here fail
#endif

// Shared memory that an asynchronous instruction names: fails unless it is there and aligned.
void check_shared(uintptr_t address, size_t bytes, unsigned alignment, const char* what);

// Makes the oldest load; false if there is none.
bool make_oldest_load(Block& block);

// Ends a phase that nothing is missing of.
void end_phase_if_complete(Mbarrier& barrier, Block& block);

// A thread ends: its stores are made.
void finish_stores(Thread& thread);

// Why a thread waits.
void describe_wait(char* text, size_t size, const Thread& thread);

// The block has ended: whatever it left under way is an error.
void check_nothing_under_way(Block& block);

}  // namespace emulator
