// setmaxnreg: warp groups hand registers to one another (sm_90a). All warps of a group (128 threads) execute it, each
// group once, in a kernel with __launch_bounds__(threads, 1): else ptxas ignores it.
#pragma once

/// Gives registers back: at most COUNT a thread from here on.
template <int COUNT>
__device__ __forceinline__ void release_registers()
{
    static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256, "a multiple of 8 from 24 to 256");
#ifdef AUTOTUNE_EMULATOR
    emulator::release_registers(COUNT);
#else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

/// Waits for registers that others released: COUNT a thread from here on.
template <int COUNT>
__device__ __forceinline__ void take_registers()
{
    static_assert(COUNT % 8 == 0 && 24 <= COUNT && COUNT <= 256, "a multiple of 8 from 24 to 256");
#ifdef AUTOTUNE_EMULATOR
    emulator::take_registers(COUNT);
#else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
