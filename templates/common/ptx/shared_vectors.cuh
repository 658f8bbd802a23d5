// Loads and stores of several words of shared memory by address. Ordinary ones through pointers would do the same; these
// stay where they are written, between the waits for barriers, and an address takes one register.
#pragma once

#include <cstdint>

#include "common/ptx/shared_address.cuh"

/// One word.
__device__ __forceinline__ uint32_t load_shared_word(SharedAddress from)
{
#ifdef AUTOTUNE_EMULATOR
    return *reinterpret_cast<const uint32_t*>(from);
#else
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
#endif
}

__device__ __forceinline__ void store_shared_word(SharedAddress to, uint32_t x)
{
#ifdef AUTOTUNE_EMULATOR
    *reinterpret_cast<uint32_t*>(to) = x;
#else
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
#endif
}

/// Two neighbouring floats, at a multiple of 8 bytes.
__device__ __forceinline__ float2 load_shared_pair(SharedAddress from)
{
#ifdef AUTOTUNE_EMULATOR
    return *reinterpret_cast<const float2*>(from);
#else
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from));
    return x;
#endif
}

/// Four neighbouring words, at a multiple of 16 bytes.
__device__ __forceinline__ void load_shared(uint32_t (&to)[4], SharedAddress from)
{
#ifdef AUTOTUNE_EMULATOR
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
#else
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
#endif
}

__device__ __forceinline__ void store_shared(SharedAddress to, const uint32_t (&from)[4])
{
#ifdef AUTOTUNE_EMULATOR
    *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
#else
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]),
                 "r"(from[3])
                 : "memory");
#endif
}

/// Four neighbouring floats, at a multiple of 16 bytes.
__device__ __forceinline__ void store_shared(SharedAddress to, float a, float b, float c, float d)
{
#ifdef AUTOTUNE_EMULATOR
    *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d);
#else
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
#endif
}
