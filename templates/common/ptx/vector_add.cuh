// Atomic additions of neighbouring floats by one instruction, which devices have from sm_90 on.
#pragma once

#ifdef AUTOTUNE_EMULATOR
#if defined(EMULATOR_ARCH) && EMULATOR_ARCH >= 900
constexpr bool ADDS_VECTORS = true;
#else
constexpr bool ADDS_VECTORS = false;
#endif
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool ADDS_VECTORS = true;
#else
constexpr bool ADDS_VECTORS = false;
#endif

/// Adds x to 2 or 4 floats at `to`, which is aligned to all of them; each sum is atomic, the whole is not. Where there is
/// no such instruction (ADDS_VECTORS), by one for each.
template <int N>
__device__ __forceinline__ void add_vector(float* to, const float (&x)[N])
{
    static_assert(N == 2 || N == 4, "by one instruction");
    if constexpr (!ADDS_VECTORS) {
#pragma unroll
        for (int e = 0; e < N; ++e) atomicAdd(to + e, x[e]);
    }
#if defined(AUTOTUNE_EMULATOR) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900)
    else if constexpr (N == 4) {
        atomicAdd(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
    } else {
        atomicAdd(reinterpret_cast<float2*>(to), make_float2(x[0], x[1]));
    }
#endif
}

/// The same of four floats, from sm_90 on, where nobody asks what was there: beside fences the compiler does not see that.
__device__ __forceinline__ void add_four(float4* to, float a, float b, float c, float d)
{
#ifdef AUTOTUNE_EMULATOR
    atomicAdd(to, make_float4(a, b, c, d));
#else
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
#endif
}
