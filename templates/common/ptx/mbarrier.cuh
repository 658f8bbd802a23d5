// mbarrier: 8 bytes of shared memory, 8-byte aligned, that count a phase's arrivals and the bytes that asynchronous
// copies still owe (sm_90 and later). A phase ends when none of either is missing; then the next begins with the same
// number of arrivals. Phases count from 0; a wait names the parity of the phase that it waits for, so that waiting for
// parity 1 of a new barrier returns at once: "the phase before the first" has ended.
#pragma once

#include "common/ptx/shared_address.cuh"

/// The first phase begins. One thread initialises; then `fence_mbarrier_init` and a barrier of the block.
__device__ __forceinline__ void mbarrier_init(SharedAddress barrier, int arrivals)
{
#ifdef AUTOTUNE_EMULATOR
    emulator::mbarrier_init(barrier, arrivals);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
#endif
}

/// One arrival: what this thread did before is seen by those who wait for the phase.
__device__ __forceinline__ void mbarrier_arrive(SharedAddress barrier)
{
#ifdef AUTOTUNE_EMULATOR
    emulator::mbarrier_arrive(barrier, 0);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

/// One arrival, after the phase has been told to wait for `bytes` more from asynchronous copies.
__device__ __forceinline__ void mbarrier_arrive_expect(SharedAddress barrier, int bytes)
{
#ifdef AUTOTUNE_EMULATOR
    emulator::mbarrier_arrive(barrier, bytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

/// Whether the phase of this parity has ended; may wait a while before it says no.
__device__ __forceinline__ bool mbarrier_try_wait(SharedAddress barrier, int parity)
{
#ifdef AUTOTUNE_EMULATOR
    return emulator::mbarrier_try_wait(barrier, parity);
#else
    uint32_t ended;
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, ended;\n"
                 "}"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended;
#endif
}

/// Waits until the phase of this parity has ended. What threads and copies did before their arrivals is seen from here.
__device__ __forceinline__ void mbarrier_wait(SharedAddress barrier, int parity)
{
#ifdef AUTOTUNE_EMULATOR
    emulator::mbarrier_wait(barrier, parity);
#else
    while (!mbarrier_try_wait(barrier, parity)) {}
#endif
}
