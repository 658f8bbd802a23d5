// fp32 on tensor cores by two instructions in place of the three of tf32_operands.cuh (sm_80 and later): big·big in tf32, and
// both small products in one of bf16, which is twice as deep and takes as long.
//
// A small factor stands for the bits from the 12th on, and its product needs few of them: with the 8 of bf16, rounded,
// what is lost is about 2^-21 of a product, of either sign. bf16 has the exponents of fp32, so nothing over- or
// underflows. In the bf16 product A's columns 0 to 7 are small parts and meet B's as they are; A's columns 8 to 15 are
// big parts and meet small ones. Depths t and t + 4 of tf32 fragments are neighbours there, in one register.
#pragma once

#include <cstdint>

#include "common/ptx/mma.cuh"
#include "common/ptx/mma_tf32.cuh"
#include "common/types.cuh"
#include "common/warp/tf32_operands.cuh"

__device__ __forceinline__ uint32_t pack_bf16(uint32_t low, uint32_t high)
{
    return pack<__nv_bfloat16>(__uint_as_float(low), __uint_as_float(high));
}

/// An A operand, 8 deep: `big` for the tf32 product, `small` for the bf16 one.
struct MixedA {
    uint32_t big[4];
    uint32_t small[4];

    /// From a fragment of floats' bits.
    __device__ __forceinline__ void set(const uint32_t (&bits)[4])
    {
        Tf32A parts;
        parts.set(bits);
#pragma unroll
        for (int i = 0; i < 4; ++i) big[i] = parts.big[i];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            small[i] = pack_bf16(parts.small[i], parts.small[i + 2]);
            small[i + 2] = pack_bf16(parts.big[i], parts.big[i + 2]);
        }
    }
};

/// A B operand, 8 deep, likewise.
struct MixedB {
    uint32_t big[2];
    uint32_t small[2];

    __device__ __forceinline__ void set(const uint32_t (&bits)[2])
    {
        Tf32B parts;
        parts.set(bits);
#pragma unroll
        for (int i = 0; i < 2; ++i) big[i] = parts.big[i];
        small[0] = pack_bf16(bits[0], bits[1]);
        small[1] = pack_bf16(parts.small[0], parts.small[1]);
    }
};

/// d[m][first + n] + rest[m][first + n] += a[m] b[n], the small products to `rest`.
template <int M, int N, int ALL>
__device__ __forceinline__ void multiply_tf32x3(float (&d)[M][ALL][4], float (&rest)[M][ALL][4], int first,
                                                const MixedA (&a)[M], const MixedB (&b)[N])
{
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int m = 0; m < M; ++m)
            mma_16x8x16<__nv_bfloat16>(rest[m][first + n], a[m].small, b[n].small[0], b[n].small[1]);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
        for (int m = 0; m < M; ++m) mma_16x8x8_tf32(d[m][first + n], a[m].big, b[n].big);
}

/// d[m][first + n] += a[m] b[n], all products to one sum.
template <int M, int N, int ALL>
__device__ __forceinline__ void multiply_tf32x3(float (&d)[M][ALL][4], int first, const MixedA (&a)[M],
                                                const MixedB (&b)[N])
{
    multiply_tf32x3(d, d, first, a, b);
}
