// bar.sync and bar.arrive with a number: some of a block's warps wait for one another, or for others that go on. Number 0
// is __syncthreads; a block has 16. Shared memory that was written before is visible after it.
#pragma once

/// Waits for THREADS threads, whole warps, at barrier `number`.
template <int THREADS>
__device__ __forceinline__ void named_barrier(int number)
{
    static_assert(THREADS % 32 == 0, "warps arrive as a whole");
#ifdef AUTOTUNE_EMULATOR
    emulator::named_barrier(number, THREADS);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
#endif
}

/// Counts as one of the THREADS threads of barrier `number` and goes on.
template <int THREADS>
__device__ __forceinline__ void named_barrier_arrive(int number)
{
    static_assert(THREADS % 32 == 0, "warps arrive as a whole");
#ifdef AUTOTUNE_EMULATOR
    emulator::named_barrier_arrive(number, THREADS);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
#endif
}
