// Single 16-bit elements of shared memory by address; they stay where they are written, between the waits for barriers.
#pragma once

#include <cstdint>

#include "common/ptx/shared_address.cuh"

__device__ __forceinline__ uint16_t load_shared_element(SharedAddress from)
{
#ifdef AUTOTUNE_EMULATOR
    return *reinterpret_cast<const uint16_t*>(from);
#else
    uint16_t x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(from) : "memory");
    return x;
#endif
}
