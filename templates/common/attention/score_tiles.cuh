// Scores as products leave them in a warp's registers, 16 * M rows by 8 * N columns: masked, and made into weights.
//
// Of tile [m][n] a lane has elements 0 and 1, neighbours in row 16 * m + lane / 4 and columns from 8 * n + 2 * (lane % 4)
// on, and elements 2 and 3, the same 8 rows below.
#pragma once

#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"

constexpr int NONE_SEEN = 1 << 30;

/// Rows are keys, columns queries from `query` on: hides the queries that do not see a key. `key`: the lane's first.
/// LATE: where the lane's columns begin is added where it is compared, which takes no register for it and more additions.
template <bool LATE, bool CAUSAL, int M, int N>
__device__ __forceinline__ void hide_queries(float (&s)[M][N][4], const Scores<CAUSAL>& scores, int key, int query,
                                             int lane)
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int own = key + 16 * m + 8 * half;
            const int hidden =
                (own < scores.T_kv ? scores.first_query(own) - query : NONE_SEEN) - (LATE ? 0 : lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < N; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (8 * n + (LATE ? lane % 4 * 2 : 0) + e < hidden) s[m][n][2 * half + e] = minus_infinity();
        }
}

/// Rows are queries, columns keys from `key` on: hides the keys that a query does not see. `query`: the lane's first.
template <bool CAUSAL, int M, int N>
__device__ __forceinline__ void hide_keys(float (&s)[M][N][4], const Scores<CAUSAL>& scores, int query, int key)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * M; ++r) {
        const int seen = scores.keys_seen(query + 8 * r) - key;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (8 * n + lane % 4 * 2 + e >= seen) s[r / 2][n][r % 2 * 2 + e] = minus_infinity();
    }
}

template <bool NATURAL, bool CAUSAL>
__device__ __forceinline__ float weight_of(const Scores<CAUSAL>& scores, float dot, float log_sum)
{
    return NATURAL ? scores.probability(dot, log_sum) : scores.weight(dot, log_sum);
}

/// Columns are queries from `first` on of those whose sums are at `sums`, two in one: S becomes P. NATURAL: they are natural
/// log-sum-exps, and the difference to them is taken before anything is rounded; else origins of `Scores::weight`.
template <bool NATURAL, bool CAUSAL, int M, int N>
__device__ __forceinline__ void weigh_columns(float (&s)[M][N][4], const Scores<CAUSAL>& scores, const float4* sums,
                                              int first, int lane)
{
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float4 both = sums[(first + 8 * n) / 2 + lane % 4];  // of two neighbouring queries
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[m][n][e] = weight_of<NATURAL>(scores, s[m][n][e], e % 2 ? both.z : both.x);
    }
}

/// The same, and dP becomes dS.
template <bool NATURAL, bool CAUSAL, int M, int N>
__device__ __forceinline__ void weigh_columns(float (&s)[M][N][4], float (&dp)[M][N][4], const Scores<CAUSAL>& scores,
                                              const float4* sums, int first, int lane)
{
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const float4 both = sums[(first + 8 * n) / 2 + lane % 4];  // of two neighbouring queries
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[m][n][e] = weight_of<NATURAL>(scores, s[m][n][e], e % 2 ? both.z : both.x);
                dp[m][n][e] = s[m][n][e] * (dp[m][n][e] - (e % 2 ? both.w : both.y));
            }
    }
}

/// Rows are queries with these sums: of S and dP, dP becomes dS.
template <bool NATURAL, bool CAUSAL, int M, int N>
__device__ __forceinline__ void weigh_rows(const float (&s)[M][N][4], float (&dp)[M][N][4], const Scores<CAUSAL>& scores,
                                           const RowSums (&sums)[2 * M])
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const RowSums& row = sums[2 * m + e / 2];
                dp[m][n][e] = weight_of<NATURAL>(scores, s[m][n][e], row.lse) * (dp[m][n][e] - row.delta);
            }
}
