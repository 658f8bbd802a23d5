// Operands of fp32 products on tensor cores as sums of two tf32 numbers ("3xTF32", see ptx/mma_tf32.cuh).
#pragma once

#include "common/ptx/mma_tf32.cuh"

/// N registers of an operand as sums of two, x = big + small. ROUNDED: to nearest, then what is left is at most 2^-23 of
/// x, of either sign. Else big is truncated, one instruction less; what is left is at most 3 * 2^-23 of x, towards 0. Of
/// NaN and infinity `small` is NaN.
template <int N, bool ROUNDED>
struct Tf32Split {
    uint32_t big[N];
    uint32_t small[N];

    __device__ __forceinline__ void set(int i, float x)
    {
        big[i] = ROUNDED ? tf32_rounded(x) : tf32_truncated(x);
        small[i] = __float_as_uint(x - __uint_as_float(big[i]));  // exact; the hardware truncates it
    }

    /// From a fragment of floats' bits, as ldmatrix leaves them (an 8x8 matrix of 16 bits is an 8x4 one of 32).
    __device__ __forceinline__ void set(const uint32_t (&bits)[N])
    {
#pragma unroll
        for (int i = 0; i < N; ++i) set(i, __uint_as_float(bits[i]));
    }
};

// With one of the factors rounded, errors of a product have no preferred sign. A is split less often than B.
using Tf32A = Tf32Split<4, true>;
using Tf32B = Tf32Split<2, false>;

/// d[m][first + n] + rest[m][first + n] += a[m] b[n] by three products, the small ones to `rest`. Tiles take turns, so that
/// a sum does not wait for the one before it.
template <int M, int N, int ALL>
__device__ __forceinline__ void multiply_tf32x3(float (&d)[M][ALL][4], float (&rest)[M][ALL][4], int first,
                                                const Tf32A (&a)[M], const Tf32B (&b)[N])
{
#pragma unroll
    for (int product = 0; product < 3; ++product)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int m = 0; m < M; ++m)
                mma_16x8x8_tf32(product == 2 ? d[m][first + n] : rest[m][first + n],
                                product == 0 ? a[m].small : a[m].big, product == 1 ? b[n].small : b[n].big);
}

/// d[m][first + n] += a[m] b[n], all three products to one sum.
template <int M, int N, int ALL>
__device__ __forceinline__ void multiply_tf32x3(float (&d)[M][ALL][4], int first, const Tf32A (&a)[M],
                                                const Tf32B (&b)[N])
{
    multiply_tf32x3(d, d, first, a, b);
}
