// TMA's tensor maps (sm_90 and later): what a tensor in device memory looks like and which box of it a copy moves. The
// host makes one; a kernel takes it as `const __grid_constant__ TensorMap` and never copies it.
#pragma once

#include <cstdint>

struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

/// Starts fetching the map itself, so that the first copy need not wait for it. One thread.
__device__ __forceinline__ void prefetch(const TensorMap& map)
{
#ifndef AUTOTUNE_EMULATOR
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}
