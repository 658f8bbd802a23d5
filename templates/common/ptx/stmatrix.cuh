// stmatrix: a warp writes four 8x8 matrices of 16-bit elements from mma fragments to shared memory (sm_90 and later;
// before, shuffles and ordinary stores).
//
// Lane 8 * i + r gives the address of row r of matrix i: 16 bytes, 16-byte aligned. Lane l's register i holds the
// elements (l / 4, 2 * (l % 4)) and (l / 4, 2 * (l % 4) + 1) of matrix i, the first in the low half: ldmatrix, backwards.
#pragma once

#include "common/ptx/shared_address.cuh"

__device__ __forceinline__ void stmatrix(SharedAddress row, const uint32_t (&from)[4])
{
#if !defined(AUTOTUNE_EMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
#else
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const SharedAddress word = __shfl_sync(0xffffffff, row, 8 * i + lane / 4) + lane % 4 * 4;
#ifdef AUTOTUNE_EMULATOR
        *reinterpret_cast<uint32_t*>(word) = from[i];
#else
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(word), "r"(from[i]) : "memory");
#endif
    }
#endif
}

/// The same, each matrix transposed: lane l's register i holds the elements (2 * (l % 4), l / 4) and
/// (2 * (l % 4) + 1, l / 4) of matrix i, as `ldmatrix_transposed` reads them.
__device__ __forceinline__ void stmatrix_transposed(SharedAddress row, const uint32_t (&from)[4])
{
#if !defined(AUTOTUNE_EMULATOR) && __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
#else
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const SharedAddress place = __shfl_sync(0xffffffff, row, i / 2 * 8 + lane % 4 * 2 + i % 2) + lane / 4 * 2;
        const uint16_t element = from[i / 2] >> i % 2 * 16;
#ifdef AUTOTUNE_EMULATOR
        *reinterpret_cast<uint16_t*>(place) = element;
#else
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(place), "h"(element) : "memory");
#endif
    }
#endif
}
