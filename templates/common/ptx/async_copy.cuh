// cp.async: copies of 4, 8 or 16 bytes from device to shared memory that bypass registers and complete later (sm_80 and
// later; on sm_75 an ordinary load and store). A thread's copies form groups in the order of `commit_copies`; after
// `wait_for_copies<N>` all but its latest N groups have arrived, and other threads see them after a barrier.
#pragma once

#include <cstdint>

#include "common/ptx/shared_address.cuh"

#ifdef AUTOTUNE_EMULATOR

template <int BYTES = 16>
inline void copy_async(SharedAddress to, const void* from, bool valid)
{
    emulator::copy_async(reinterpret_cast<void*>(to), from, BYTES, valid ? BYTES : 0);
}

inline void copy_async_part(SharedAddress to, const void* from, int bytes)
{
    emulator::copy_async(reinterpret_cast<void*>(to), from, 4, bytes);
}

inline void store_later(SharedAddress to, uint32_t word) { *reinterpret_cast<uint32_t*>(to) = word; }

inline void commit_copies() { emulator::commit_copies(); }

template <int N>
inline void wait_for_copies()
{
    emulator::wait_for_copies(N);
}

#else

/// Copies BYTES bytes, both ends aligned to as many; writes zeros, and reads nothing, where `valid` is false. 16 bytes
/// pass by the L1 cache, fewer go through it: neighbouring copies find the rest of a sector there.
template <int BYTES = 16>
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from, bool valid)
{
    static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "what cp.async copies");
#if __CUDA_ARCH__ >= 800
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                     "r"(valid ? BYTES : 0)
                     : "memory");
#else  // no memory clobber: later loads may start before these stores
    if constexpr (BYTES == 16) {
        uint4 bytes = make_uint4(0, 0, 0, 0);
        if (valid) bytes = *reinterpret_cast<const uint4*>(from);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(bytes.x), "r"(bytes.y), "r"(bytes.z),
                     "r"(bytes.w));
    } else if constexpr (BYTES == 8) {
        uint2 bytes = make_uint2(0, 0);
        if (valid) bytes = *reinterpret_cast<const uint2*>(from);
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(bytes.x), "r"(bytes.y));
    } else {
        uint32_t bytes = 0;
        if (valid) bytes = *reinterpret_cast<const uint32_t*>(from);
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(bytes));
    }
#endif
}

/// Writes a word that was just read. No memory clobber: reads that come later in the program may start before.
__device__ __forceinline__ void store_later(SharedAddress to, uint32_t word)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word));
}

/// Copies the first `bytes` of a word, 0, 2 or 4 of them, both ends 4-byte aligned; reads nothing of the others, which
/// become 0.
__device__ __forceinline__ void copy_async_part(SharedAddress to, const void* from, int bytes)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
    uint32_t word = 0;
    if (bytes == 4) word = *reinterpret_cast<const uint32_t*>(from);
    if (bytes == 2) word = *reinterpret_cast<const uint16_t*>(from);
    store_later(to, word);
#endif
}

/// Ends a group of copies; an empty group counts too.
__device__ __forceinline__ void commit_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most the thread's latest N groups are under way.
template <int N>
__device__ __forceinline__ void wait_for_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#endif
