// Arithmetic of one instruction that C++ has no word for.
#pragma once

/// 2^x to two units in the last place, in one instruction; results under 2^-126 become 0.
__device__ __forceinline__ float exp2_fast(float x)
{
#ifdef AUTOTUNE_EMULATOR
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/// max(x, bound), or NaN where x is NaN.
__device__ __forceinline__ float at_least(float x, float bound)
{
#if !defined(AUTOTUNE_EMULATOR) && __CUDA_ARCH__ >= 800
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
    return y;
#else
    return x < bound ? bound : x;
#endif
}
