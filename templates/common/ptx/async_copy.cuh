// cp.async: 16-byte copies from device to shared memory that bypass registers and complete later (sm_80 and later; on
// sm_75 an ordinary load and store). A thread's copies form groups in the order of `commit_copies`; after
// `wait_for_copies<N>` all but its latest N groups have arrived, and other threads see them after a barrier.
#pragma once

#include "common/ptx/shared_address.cuh"

#ifdef AUTOTUNE_EMULATOR

inline void copy_async(SharedAddress to, const void* from, bool valid)
{
    emulator::copy_async(reinterpret_cast<void*>(to), from, 16, valid ? 16 : 0);
}

inline void commit_copies() { emulator::commit_copies(); }

template <int N>
inline void wait_for_copies()
{
    emulator::wait_for_copies(N);
}

#else

/// Copies 16 bytes, both ends 16-byte aligned; writes zeros, and reads nothing, where `valid` is false.
__device__ __forceinline__ void copy_async(SharedAddress to, const void* from, bool valid)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
#else
    uint4 bytes = make_uint4(0, 0, 0, 0);
    if (valid) bytes = *reinterpret_cast<const uint4*>(from);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(bytes.x), "r"(bytes.y), "r"(bytes.z),
                 "r"(bytes.w));  // no memory clobber: later loads may start before this store
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
