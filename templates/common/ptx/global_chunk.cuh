// 16 bytes to device memory by one store.
#pragma once

#include <cstdint>

__device__ __forceinline__ void store_chunk(void* to, const uint32_t (&words)[4])
{
#ifdef AUTOTUNE_EMULATOR
    *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
#else
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3])
                 : "memory");
#endif
}
