// fp32 operands of wgmma as sums of two numbers (3xTF32, see ptx/mma_tf32.cuh and warp/tf32_bf16_operands.cuh): A in
// registers or shared memory, B in two tiles of shared memory, one of big parts and one of small ones.
//
// The depth is counted in another order within each 8: d[0], d[2], d[1], d[3] of wgmma's accumulators, and so columns 2t and
// 2t + 1 of a row, are an A operand of tf32 where they lie if column 2t is at t and 2t + 1 at t + 4. B's tiles have that
// order. Small parts in bf16 lie in the usual order, twice as deep: 8 of A's small ones for 8 of B's big ones, then 8 of A's
// big ones for 8 of B's small ones. Either way 8 of the depth are 32 bytes of a line, of both tiles.
//
// A's big parts are truncated, by the hardware: its registers are the floats themselves. B's are rounded, once, by whoever
// lays out the tiles; so errors of a product have no preferred sign.
#pragma once

#include "common/ptx/mma_tf32.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/types.cuh"

/// What small parts, and their products, are computed in.
enum class SmallParts { BF16, TF32 };

/// `wgmma_advance` within the lower word, where a place in shared memory is: the upper one is known when code is written,
/// and of the many operands of a long product it takes no registers.
__device__ __forceinline__ uint64_t advance(uint64_t descriptor, int bytes)
{
    return (descriptor >> 32 << 32) | static_cast<uint32_t>(static_cast<uint32_t>(descriptor) + (bytes >> 4));
}

/// The same descriptor, of which the compiler knows nothing: else it would keep those of all steps that follow from it
/// in registers, from one round of a loop to the next.
__device__ __forceinline__ uint64_t settled(uint64_t descriptor)
{
    return (descriptor >> 32 << 32) | static_cast<uint32_t>(opaque(static_cast<int>(descriptor)));
}

/// Small parts of an A operand, 16 rows by 8 a warp, of its bits: rows g and g + 8 of column 2t, then of 2t + 1.
template <SmallParts SMALL>
__device__ __forceinline__ void take_small(uint32_t (&small)[4], const uint32_t (&bits)[4])
{
    float rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        rest[i] = __uint_as_float(bits[i]) - __uint_as_float(tf32_truncated(__uint_as_float(bits[i])));  // exact
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if constexpr (SMALL == SmallParts::BF16) {
            small[i] = pack<__nv_bfloat16>(rest[i], rest[i + 2]);
            small[i + 2] = pack<__nv_bfloat16>(__uint_as_float(bits[i]), __uint_as_float(bits[i + 2]));
        } else {
            small[i] = __float_as_uint(rest[i]);
            small[i + 2] = __float_as_uint(rest[i + 2]);
        }
    }
}

/// Both parts of 8 neighbours in the depth of one of B's columns, as they lie in its tiles: two chunks of 16 bytes each.
template <SmallParts SMALL>
struct WideLine {
    uint32_t big[2][4];
    uint32_t small[2][4];

    __device__ __forceinline__ explicit WideLine(const float (&x)[8])
    {
        float rounded[8], rest[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            rounded[i] = __uint_as_float(tf32_rounded(x[i]));
            rest[i] = x[i] - rounded[i];  // exact
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            big[i % 2][i / 2] = __float_as_uint(rounded[i]);
            if constexpr (SMALL == SmallParts::TF32) small[i % 2][i / 2] = __float_as_uint(rest[i]);
        }
        if constexpr (SMALL == SmallParts::BF16) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                small[0][i] = pack<__nv_bfloat16>(rounded[2 * i], rounded[2 * i + 1]);
                small[1][i] = pack<__nv_bfloat16>(rest[2 * i], rest[2 * i + 1]);
            }
        }
    }
};

/// d += A B or, at first, d = A B: the small products of 8 of the depth. `a` and `b`: registers of A or a descriptor of
/// its tile, big and small; descriptors of B's tiles. These come before all of `multiply_big`: the hardware truncates its
/// sums, at every step by as much as they are large.
template <SmallParts SMALL, int N, class Big, class Small>
__device__ __forceinline__ void multiply_small(float (&d)[N / 2], const Big& a_big, const Small& a_small, uint64_t b_big,
                                               uint64_t b_small, bool first)
{
    if constexpr (SMALL == SmallParts::BF16) {
        wgmma<__nv_bfloat16, N>(d, a_small, b_small, !first);
    } else {
        wgmma<float, N>(d, a_small, b_big, !first);
        wgmma<float, N>(d, a_big, b_small, 1);
    }
}

/// Between small products and large ones that add to the same sums: wgmmas of one shape are in order by themselves, those
/// of 16 bits have another.
template <SmallParts SMALL>
__device__ __forceinline__ void order_products()
{
    if constexpr (SMALL == SmallParts::BF16) wgmma_fence();
}

/// d += A B: the large product of 8 of the depth.
template <int N, class Big>
__device__ __forceinline__ void multiply_big(float (&d)[N / 2], const Big& a_big, uint64_t b_big)
{
    wgmma<float, N>(d, a_big, b_big, 1);
}
