// Small things that all checks of accesses share.
#pragma once

#include "tracer.hpp"

namespace emulator::trace {

inline uint32_t index_of(const Thread& thread) { return static_cast<uint32_t>(&thread - thread.block->threads); }

inline bool is_read(Access access) { return access <= Access::matrix_read; }
inline bool is_atomic(Access access) { return access >= Access::atomic; }

// The part of the word at `word` that [address, address + bytes) covers, a bit a byte.
inline uint8_t mask_in(uintptr_t word, uintptr_t address, uint32_t bytes) {
  uintptr_t first = address > word ? address - word : 0;
  uintptr_t end = address + bytes < word + 4 ? address + bytes - word : 4;
  return static_cast<uint8_t>((1u << end) - (1u << first));
}

}  // namespace emulator::trace
