// Tensor cores: D (16x8) += A (16x16) B (16x8), 16-bit operands, fp32 accumulation, one warp.
//
// Fragments of lane l, with g = l / 4 and p = 2 * (l % 4); a register holds two elements, the first in the low half:
//   A   a[0] = (g, p..p+1)   a[1] = (g + 8, p..p+1)   a[2] = (g, p + 8..p + 9)   a[3] = (g + 8, p + 8..p + 9)
//   B   b0 = (p..p+1, g)     b1 = (p + 8..p + 9, g)
//   D   d[0..1] = (g, p..p+1)   d[2..3] = (g + 8, p..p+1)
// So d of two neighbouring tiles, rounded and packed, is an A operand: a = {d[0..1], d[2..3], d'[0..1], d'[2..3]}.
#pragma once

#include <cstdint>

#include "common/types.cuh"

#ifdef AUTOTUNE_EMULATOR

struct MmaLane {
    float d[4];
    uint32_t a[4];
    uint32_t b[2];
};

template <class T>
inline void unpack(uint32_t both, float& low, float& high)
{
    const uint16_t bits[2] = {uint16_t(both), uint16_t(both >> 16)};
    low = to_float(reinterpret_cast<const T*>(bits)[0]);
    high = to_float(reinterpret_cast<const T*>(bits)[1]);
}

/// Exact products, added up in fp32 in ascending order of k; the hardware's order and rounding are its own.
template <class T>
inline void multiply_fragments(MmaLane* const lanes[32])
{
    float a[16][16], b[16][8], d[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const MmaLane& from = *lanes[lane];
        const int g = lane / 4, p = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
            float* const to = &a[g + i % 2 * 8][p + i / 2 * 8];
            unpack<T>(from.a[i], to[0], to[1]);
        }
        for (int i = 0; i < 2; ++i) unpack<T>(from.b[i], b[p + i * 8][g], b[p + i * 8 + 1][g]);
    }
    for (int row = 0; row < 16; ++row)
        for (int col = 0; col < 8; ++col) d[row][col] = lanes[row % 8 * 4 + col / 2]->d[row / 8 * 2 + col % 2];
    for (int k = 0; k < 16; ++k)  // outermost, so that the sums of a row do not wait for one another
        for (int row = 0; row < 16; ++row)
            for (int col = 0; col < 8; ++col) d[row][col] += a[row][k] * b[k][col];
    for (int row = 0; row < 16; ++row)
        for (int col = 0; col < 8; ++col) lanes[row % 8 * 4 + col / 2]->d[row / 8 * 2 + col % 2] = d[row][col];
}

template <class T>
inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    MmaLane lane{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulator::warp_compute<MmaLane, multiply_fragments<T>>(lane, "mma");
    for (int i = 0; i < 4; ++i) d[i] = lane.d[i];
}

#else

template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void mma_16x8x16<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // sm_75 multiplies 8 deep
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}

#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void mma_16x8x16<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                           uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

#endif
