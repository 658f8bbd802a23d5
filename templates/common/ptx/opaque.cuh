// A value that the compiler is not to reason about.
#pragma once

/// x, of which the compiler knows nothing from here on but that it has it. What follows from the thread's number it would
/// else compute again wherever it is used, even in loops, which saves registers and costs more time than it seems: what
/// follows from an opaque value it keeps. In a loop it is the other way round: what follows from a value made opaque
/// there is computed in every round, where it is used, and takes no register from round to round.
__device__ __forceinline__ int opaque(int x)
{
#ifndef AUTOTUNE_EMULATOR
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/// threadIdx.x, read where it is asked for: it takes no register before.
__device__ __forceinline__ int opaque_thread()
{
#ifdef AUTOTUNE_EMULATOR
    return threadIdx.x;
#else
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
#endif
}
