// What four warps do together: wgmma, and handing registers to one another. A product is computed as late as the program
// allows: when the first thread waits for it. Until a thread waits, its accumulators hold NaN.
#pragma once

#include "thread.hpp"

namespace emulator {

enum class Operand : uint8_t { fp16, bf16, tf32 };

struct WgmmaShape {
  Operand type;
  uint8_t a_transposed, b_transposed;  // MN-major
  uint16_t columns;                    // N
};

// `d`: the calling thread's columns / 2 accumulators; `registers`: its part of A, or null: A is where `a` says.
void wgmma(const WgmmaShape& shape, float* d, const uint32_t* registers, uint64_t a, uint64_t b, bool accumulate);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned groups, Place place = EMULATOR_HERE);

// Fails if these registers are accumulators of products under way.
void hold_registers(const void* registers, const char* what);

// setmaxnreg: nothing but checks.
void release_registers(unsigned count);
void take_registers(unsigned count);

}  // namespace emulator
