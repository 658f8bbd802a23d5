// ldmatrix: a warp reads four 8x8 matrices of 16-bit elements from shared memory into mma fragments (sm_75 and later).
//
// Lane 8 * i + r gives the address of row r of matrix i: 16 bytes, 16-byte aligned. Lane l receives in register i the
// elements (l / 4, 2 * (l % 4)) and (l / 4, 2 * (l % 4) + 1) of matrix i, the first in the low half; or, transposed, the
// elements (2 * (l % 4), l / 4) and (2 * (l % 4) + 1, l / 4).
#pragma once

#include "common/ptx/shared_address.cuh"

#ifdef AUTOTUNE_EMULATOR

struct LdmatrixLane {
    const uint16_t* row;
    uint32_t registers[4];
};

template <bool TRANSPOSED>
inline void load_matrices(LdmatrixLane* const lanes[32])
{
    for (int i = 0; i < 4; ++i)
        for (int lane = 0; lane < 32; ++lane) {
            const int major = lane / 4, minor = lane % 4 * 2;
            const uint16_t low = TRANSPOSED ? lanes[8 * i + minor]->row[major] : lanes[8 * i + major]->row[minor];
            const uint16_t high =
                TRANSPOSED ? lanes[8 * i + minor + 1]->row[major] : lanes[8 * i + major]->row[minor + 1];
            lanes[lane]->registers[i] = uint32_t(high) << 16 | low;
        }
}

template <bool TRANSPOSED>
inline void ldmatrix_emulated(uint32_t (&to)[4], SharedAddress row)
{
    LdmatrixLane lane{reinterpret_cast<const uint16_t*>(row), {}};
    emulator::traced_matrix_row(lane.row);
    emulator::warp_compute<LdmatrixLane, load_matrices<TRANSPOSED>>(lane, "ldmatrix");
    for (int i = 0; i < 4; ++i) to[i] = lane.registers[i];
}

inline void ldmatrix(uint32_t (&to)[4], SharedAddress row) { ldmatrix_emulated<false>(to, row); }
inline void ldmatrix_transposed(uint32_t (&to)[4], SharedAddress row) { ldmatrix_emulated<true>(to, row); }

#else

__device__ __forceinline__ void ldmatrix(uint32_t (&to)[4], SharedAddress row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&to)[4], SharedAddress row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

#endif
