// What a traced run finds wrong. Read by Python, so plain C.
#pragma once

#include <stdint.h>

namespace emulator::trace {

enum Kind : uint32_t {
  out_of_bounds,
  outside_tensors,
  misaligned,
  shared_race,
  global_race,
  block_race,
  not_written,
  not_waited_for,
  divergent_barrier,
  deadlocked,
  wrong_mask,
  input_written,
  index_out_of_bounds,
  crashed,
  not_fenced,
  overwritten,
  not_ended,
};

// Spaces that are no buffer of the plan.
constexpr uint32_t dynamic_shared = 0xfffffffe, static_shared = 0xffffffff, no_space = 0xfffffffd;

struct Finding {
  uint32_t kind;
  uint32_t launch;   // which, counted from 0
  uint32_t pc, other_pc;  // offsets into the library; 0: none
  uint32_t is_write, other_is_write;
  uint32_t space;    // a buffer's index, or one of the constants above
  uint32_t bytes;
  int64_t offset;    // from the start of the space
  uint64_t block, other_block;
  uint32_t thread, other_thread;
  uint32_t mask;     // of a warp operation; alignment asked for by a misaligned access; bound of an index; an earlier launch
  uint32_t count;    // how often: the first one is described
};

// What one instruction did in the blocks that were traced in full. `operation` is an Operation.
struct Stat {
  uint32_t pc;
  uint32_t launch;
  uint32_t operation;
  uint32_t bytes;      // of one lane's access; of a tensor-core product: multiply-adds of the warp
  uint64_t requests;   // by warps
  uint64_t lanes;      // that took part
  uint64_t sectors, ideal_sectors;        // global memory: 32 bytes each
  uint64_t wavefronts, ideal_wavefronts;  // shared memory
  uint32_t worst;      // most-way bank conflict, or most sectors of a request
  uint32_t conflicted; // requests with a bank conflict (at most 2^32 - 1)
};

enum Operation : uint32_t {
  global_load,
  global_store,
  global_atomic,
  shared_load,
  shared_store,
  shared_atomic,
  barrier,
  warp_barrier,
  shuffle,
  vote,
  tensor,
  matrix_load,
  other_warp,
  async_copy,
};

}  // namespace emulator::trace
