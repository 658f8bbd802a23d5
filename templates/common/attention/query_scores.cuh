// Scores and their gradients in wgmma's accumulators, not transposed: 64 queries of a warp group by keys. What is known of a
// query (its log-sum-exp, its delta) is known of a row, of which a thread has two. Rounded, dS is an operand A of the product
// that gives dQ; P and dS of all groups, in shared memory, are operands of those that give dV and dK.
#pragma once

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/score.cuh"
#include "common/ptx/shared_vectors.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/types.cuh"

/// What lies in shared memory of a warp's sixteen rows, two floats a row of the warp group's 64: one of them a lane. Handed
/// round by `of_rows`, all have been loaded, and their places may be released.
__device__ __forceinline__ float load_of_lane(SharedAddress first, SharedAddress second)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    return __uint_as_float(load_shared_word((lane < 16 ? first : second) + 4 * row));
}

/// Of the thread's two rows the first float, or the SECOND.
template <bool SECOND>
__device__ __forceinline__ void of_rows(float (&x)[2], float own)
{
#pragma unroll
    for (int r = 0; r < 2; ++r) x[r] = __shfl_sync(ALL_LANES, own, threadIdx.x % 32 / 4 + 8 * r + (SECOND ? 16 : 0));
}

/// From scores to weights. `origins`: what is subtracted from each of the two rows' scores in base 2.
template <int REGISTERS, bool CAUSAL>
__device__ __forceinline__ void weigh_rows(float (&s)[REGISTERS], const Scores<CAUSAL>& scores, const float (&origins)[2])
{
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) s[i] = scores.weight(s[i], origins[i / 2 % 2]);
}

/// P, rounded, and dS, rounded, from P and dP.
template <class T, int STEPS>
__device__ __forceinline__ void differentiate_rows(uint32_t (&p)[STEPS][4], uint32_t (&ds)[STEPS][4],
                                                   const float (&weights)[8 * STEPS], const float (&dp)[8 * STEPS],
                                                   const float (&deltas)[2])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i) {
        const float low = weights[2 * i], high = weights[2 * i + 1], delta = deltas[i % 2];
        p[i / 4][i % 4] = pack<T>(low, high);
        ds[i / 4][i % 4] = pack<T>(low * (dp[2 * i] - delta), high * (dp[2 * i + 1] - delta));
    }
}

/// Writes a warp group's operands A, 64 rows by 16 * STEPS columns, to rows of a tile from `row` on.
template <class Tile, int STEPS>
__device__ __forceinline__ void place_operands(SharedAddress tile, int row, const uint32_t (&x)[STEPS][4])
{
    const int lane = threadIdx.x % 32, own = row + threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) stmatrix(tile + Tile::offset(own, 16 * step + lane / 16 * 8), x[step]);
}
