// Tensor cores on fp32 operands (sm_80 and later): D (16x8) += A (16x8) B (8x8) in tf32, fp32 accumulation, one warp.
//
// Fragments of lane l, with g = l / 4 and t = l % 4; a register holds one element, a float's bits:
//   A   a[0] = (g, t)   a[1] = (g + 8, t)   a[2] = (g, t + 4)   a[3] = (g + 8, t + 4)
//   B   b[0] = (t, g)   b[1] = (t + 4, g)
//   D   d[0..1] = (g, 2t..2t+1)   d[2..3] = (g + 8, 2t..2t+1)
// The depth of a product may be counted in any order, if A and B agree: with column 2t of A at t and 2t + 1 at t + 4,
// d is an A operand where it lies, {d[0], d[2], d[1], d[3]}, and B takes rows b[0] = (2t, g), b[1] = (2t + 1, g).
//
// A tf32 has 10 bits of mantissa; the hardware ignores the lower 13 of a register. Two of them hold a float but for its
// last bits: x = big + small. big·big + big·small + small·big is then a product about as good as fp32's ("3xTF32"):
// small·small, about 2^-22 of it, is left out. The hardware also truncates its sums, towards 0 at every step: long ones
// are better added up in fp32, piece by piece, and small products in a sum of their own.
#pragma once

#include <cstdint>

/// x rounded to tf32, to nearest, ties away from zero: cvt.rna.tf32.f32 for all x but NaN, which may become 0. Two
/// instructions; that one becomes four on sm_80 to sm_90.
__device__ __forceinline__ uint32_t tf32_rounded(float x) { return (__float_as_uint(x) + 0x1000u) & 0xffffe000u; }

/// x without the bits that a tf32 has no room for.
__device__ __forceinline__ uint32_t tf32_truncated(float x) { return __float_as_uint(x) & 0xffffe000u; }

#ifdef AUTOTUNE_EMULATOR

struct Tf32MmaLane {
    float d[4];
    uint32_t a[4];
    uint32_t b[2];
};

inline float tf32_seen(uint32_t bits) { return __uint_as_float(bits & 0xffffe000u); }

inline float toward_zero(double x)
{
    const float nearest = float(x);
    if (nearest != nearest || fabs(double(nearest)) <= fabs(x)) return nearest;
    return __uint_as_float(__float_as_uint(nearest) - 1);
}

/// Operands truncated, exact products, their sum with D truncated; the hardware's order is its own.
inline void multiply_tf32_fragments(Tf32MmaLane* const lanes[32])
{
    double a[16][8], b[8][8];
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) a[g + i % 2 * 8][t + i / 2 * 4] = tf32_seen(lanes[lane]->a[i]);
        for (int i = 0; i < 2; ++i) b[t + i * 4][g] = tf32_seen(lanes[lane]->b[i]);
    }
    for (int row = 0; row < 16; ++row) {
        double d[8];
        for (int col = 0; col < 8; ++col) d[col] = lanes[row % 8 * 4 + col / 2]->d[row / 8 * 2 + col % 2];
        for (int k = 0; k < 8; ++k)
            for (int col = 0; col < 8; ++col) d[col] += a[row][k] * b[k][col];
        for (int col = 0; col < 8; ++col)
            lanes[row % 8 * 4 + col / 2]->d[row / 8 * 2 + col % 2] = toward_zero(d[col]);
    }
}

inline void mma_16x8x8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    Tf32MmaLane lane{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    emulator::warp_compute<Tf32MmaLane, multiply_tf32_fragments>(lane, "mma.m16n8k8");
    for (int i = 0; i < 4; ++i) d[i] = lane.d[i];
}

#else

/// The bare instruction, one product of tf32 operands.
__device__ __forceinline__ void mma_16x8x8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
