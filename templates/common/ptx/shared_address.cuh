// Addresses in shared memory, as instructions that take one want them.
#pragma once

#include <cstdint>

#ifdef AUTOTUNE_EMULATOR
using SharedAddress = uintptr_t;  // one address space there
#else
using SharedAddress = uint32_t;  // an offset into the block's shared memory, as PTX wants it
#endif

__device__ __forceinline__ SharedAddress shared_address(const void* pointer)
{
    return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}
