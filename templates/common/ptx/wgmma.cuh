// wgmma: D (64 x N) += A (64 x K) B (K x N) by a warp group, four warps from one whose number divides by four (sm_90a).
// Operands are 16 bits wide (K = 16) or tf32 (K = 8), sums fp32. It runs asynchronously: between `wgmma_fence` and
// `wgmma_wait` nobody touches D, A's registers, or A and B in shared memory.
//
// Lane l of warp w of the group holds, with g = l / 4 and p = 2 * (l % 4), for each block c of 8 columns:
//   d[4c .. 4c + 1] = (16w + g, 8c + p .. 8c + p + 1)   d[4c + 2 .. 4c + 3] = (16w + g + 8, 8c + p .. 8c + p + 1)
// and A from registers as mma's a[4] (common/ptx/mma.cuh), of rows 16w .. 16w + 15: d of two neighbouring blocks, rounded and
// packed, is an A operand.
//
// An operand in shared memory lies in lines of 128, 64 or 32 bytes, the swizzle's width: TMA's box has so wide a row. Eight
// lines are an atom, at a multiple of eight widths; their 16-byte chunks change places as TMA's do (`swizzled`).
//   K-major (A: M x K, B: N x K, a line holds neighbouring k): `stride` is from 8 rows to the next 8 (eight widths, where
//     rows lie densely); `leading` does not matter. The next k within a line are K * sizeof(T) bytes further.
//   MN-major ("transposed"; 16 bits alone. A: K x M, B: K x N, a line holds neighbouring m or n): `leading` is from an
//     atom to that of the next columns, `stride` from 8 k to the next 8.
// Without a swizzle the atom is 8 chunks of 16 bytes, one behind the other; K-major: `leading` is to the next chunk of k,
// `stride` to the next 8 rows; MN-major: `leading` is to the next 8 k, `stride` to the next chunk of columns.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "common/ptx/shared_address.cuh"
#include "common/ptx/wgmma_shapes.cuh"

/// Where a byte of a tile goes whose lines are SWIZZLE bytes wide (128, 64 or 32; 16: nowhere else): what TMA does to the
/// bits of an address, or of an offset into a tile that starts at a multiple of eight widths.
template <int SWIZZLE, class Address>
__device__ __forceinline__ constexpr Address swizzled(Address address)
{
    static_assert(SWIZZLE == 128 || SWIZZLE == 64 || SWIZZLE == 32 || SWIZZLE == 16, "lines of 128, 64, 32 or 16 bytes");
    return address ^ (address >> 3 & Address(SWIZZLE - 16));
}

/// What a wgmma reads: a tile's address, its swizzle (128, 64, 32; 16: none), and its two distances in bytes. Distances and
/// offsets are multiples of 16; a descriptor of an address further in the same tile is `wgmma_advance(descriptor, bytes)`.
template <int SWIZZLE>
__device__ __forceinline__ uint64_t wgmma_descriptor(SharedAddress tile, int leading, int stride)
{
    static_assert(SWIZZLE == 128 || SWIZZLE == 64 || SWIZZLE == 32 || SWIZZLE == 16, "lines of 128, 64, 32 or 16 bytes");
    constexpr uint64_t MODE = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
    return uint64_t(tile >> 4 & 0x3fff) | uint64_t(leading >> 4 & 0x3fff) << 16 | uint64_t(stride >> 4 & 0x3fff) << 32 |
           MODE << 62;
}

__device__ __forceinline__ uint64_t wgmma_advance(uint64_t descriptor, int bytes) { return descriptor + (bytes >> 4); }

#ifdef AUTOTUNE_EMULATOR

template <class T>
constexpr emulator::Operand wgmma_operand()
{
    return sizeof(T) == 4 ? emulator::Operand::tf32
                          : std::is_same_v<T, __half> ? emulator::Operand::fp16 : emulator::Operand::bf16;
}

template <class T, int N, bool A_TRANSPOSED = false, bool B_TRANSPOSED = false, int REGISTERS>
inline void wgmma(float (&d)[REGISTERS], uint64_t a, uint64_t b, int accumulate)
{
    static_assert(REGISTERS == N / 2, "a thread holds N / 2 elements of D");
    emulator::wgmma({wgmma_operand<T>(), A_TRANSPOSED, B_TRANSPOSED, N}, d, nullptr, a, b, accumulate != 0);
}

template <class T, int N, bool B_TRANSPOSED = false, int REGISTERS>
inline void wgmma(float (&d)[REGISTERS], const uint32_t (&a)[4], uint64_t b, int accumulate)
{
    static_assert(REGISTERS == N / 2, "a thread holds N / 2 elements of D");
    emulator::wgmma({wgmma_operand<T>(), false, B_TRANSPOSED, N}, d, a, 0, b, accumulate != 0);
}

template <class... Registers>
inline void wgmma_fence(Registers&... registers)
{
    (emulator::hold_registers(registers, "wgmma_fence"), ...);
    emulator::wgmma_fence();
}

inline void wgmma_commit() { emulator::wgmma_commit(); }

template <int N, class... Registers>
inline void wgmma_wait(Registers&... registers)
{
    emulator::wgmma_wait(N);
    (emulator::hold_registers(registers, "wgmma_wait"), ...);
}

#else

/// D += A B, or D = A B where `accumulate` is 0; T: __half, __nv_bfloat16, or float (tf32: the hardware ignores the lower 13
/// bits). Each operand K-major, or transposed: MN-major.
template <class T, int N, bool A_TRANSPOSED = false, bool B_TRANSPOSED = false, int REGISTERS>
__device__ __forceinline__ void wgmma(float (&d)[REGISTERS], uint64_t a, uint64_t b, int accumulate)
{
    static_assert(REGISTERS == N / 2, "a thread holds N / 2 elements of D");
    static_assert(sizeof(T) == 2 || !(A_TRANSPOSED || B_TRANSPOSED), "only 16-bit operands can be transposed");
    WgmmaShape<N>::template multiply<T, A_TRANSPOSED, B_TRANSPOSED>(d, a, b, accumulate);
}

/// The same with A from registers.
template <class T, int N, bool B_TRANSPOSED = false, int REGISTERS>
__device__ __forceinline__ void wgmma(float (&d)[REGISTERS], const uint32_t (&a)[4], uint64_t b, int accumulate)
{
    static_assert(REGISTERS == N / 2, "a thread holds N / 2 elements of D");
    static_assert(sizeof(T) == 2 || !B_TRANSPOSED, "only 16-bit operands can be transposed");
    WgmmaShape<N>::template multiply<T, B_TRANSPOSED>(d, a, b, accumulate);
}

/// Keeps the compiler from moving reads and writes of these registers across.
template <class T, int N>
__device__ __forceinline__ void hold_registers(T (&registers)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if constexpr (std::is_same_v<T, float>)
            asm volatile("" : "+f"(registers[i])::"memory");
        else
            asm volatile("" : "+r"(registers[i])::"memory");
    }
}

template <class T, int M, int N>
__device__ __forceinline__ void hold_registers(T (&registers)[M][N])
{
#pragma unroll
    for (int i = 0; i < M; ++i) hold_registers(registers[i]);
}

/// Before the first wgmma, and whenever D's or A's registers were written since: name those, they are wgmma's from here on.
/// Accumulators of products under way must not be named: ptxas would run one product after the other.
template <class... Registers>
__device__ __forceinline__ void wgmma_fence(Registers&... registers)
{
    (hold_registers(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Ends a group of the warp's wgmmas.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until at most the latest N groups are under way; name the registers that are free to be used then.
template <int N, class... Registers>
__device__ __forceinline__ void wgmma_wait(Registers&... registers)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
    (hold_registers(registers), ...);
}

#endif
