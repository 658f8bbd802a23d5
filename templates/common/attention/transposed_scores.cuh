// Scores and their gradients in wgmma's accumulators, transposed: 64 keys of a warp group by queries. Rounded, they are
// operands A of the products that give dV and dK. What is known of a query (its log-sum-exp, its delta) lies in shared
// memory, a float a query of the tile: a thread has columns of all of them.
#pragma once

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/score.cuh"
#include "common/ptx/shared_vectors.cuh"
#include "common/types.cuh"

/// Hides the scores of queries that do not see their key. `before`: how many of the queries from the thread's first one on
/// come before the first that sees each of its two keys.
template <int REGISTERS>
__device__ __forceinline__ void hide_before(float (&s)[REGISTERS], const int (&before)[2])
{
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i)
        if (i / 4 * 8 + i % 2 < before[i / 2 % 2]) s[i] = minus_infinity();
}

/// From scores to weights. `origins`: what is subtracted from each query's scores in base 2.
template <int REGISTERS, bool CAUSAL>
__device__ __forceinline__ void weigh_transposed(float (&s)[REGISTERS], const Scores<CAUSAL>& scores,
                                                 SharedAddress origins)
{
    const SharedAddress own = origins + accumulator_col() * 4;
#pragma unroll
    for (int n = 0; n < REGISTERS / 4; ++n) {
        const float2 origin = load_shared_pair(own + 32 * n);
#pragma unroll
        for (int e = 0; e < 4; ++e) s[4 * n + e] = scores.weight(s[4 * n + e], e % 2 ? origin.y : origin.x);
    }
}

/// dS of 16 queries, rounded, from P and from dP. `weights`: pairs of P by number. `deltas`: of these queries.
template <class T, class Weights>
__device__ __forceinline__ void differentiate_transposed(uint32_t (&ds)[4], const Weights& weights, const float* dp,
                                                         SharedAddress deltas)
{
    const SharedAddress own = deltas + accumulator_col() * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float2 delta = load_shared_pair(own + 32 * half);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const float2 p = weights(2 * half + row);
            const float* const pair = dp + 4 * half + 2 * row;
            ds[2 * half + row] = pack<T>(p.x * (pair[0] - delta.x), p.y * (pair[1] - delta.y));
        }
    }
}
