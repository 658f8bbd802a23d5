// Fences of Hopper's asynchronous proxy (sm_90 and later): what threads write by ordinary stores is seen by TMA and by
// wgmma only behind one.
#pragma once

/// Ordinary writes of this thread to shared memory come before what TMA and wgmma do after the next barrier (or in this
/// thread, from here on). Each writing thread executes it, before that barrier.
__device__ __forceinline__ void fence_async_shared()
{
#ifdef AUTOTUNE_EMULATOR
    emulator::fence_async();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Initialised mbarriers are ready for TMA, and for the other blocks of a cluster. Executed by the thread that
/// initialised them, before the barrier that shows them to others.
__device__ __forceinline__ void fence_mbarrier_init()
{
#ifdef AUTOTUNE_EMULATOR
    emulator::fence_mbarrier_init();
#else
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// What this thread has written or seen comes before what it writes or sees from here on, for all threads of the GPU: less
/// than __threadfence(), which also puts all such fences in one order.
__device__ __forceinline__ void fence_gpu()
{
#ifdef AUTOTUNE_EMULATOR
    __threadfence();
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}
