// The online softmax of a warp's rows, on tiles of scores as products leave them: 16 * M rows by 8 * N columns (see
// score_tiles.cuh for which elements a lane has). A lane has 2 * M rows: row r is 8 * r below its first.
//
// Rescaling only where a maximum grows much is FlashAttention-4's (2025), as is the share of exponentials on FMA units.
#pragma once

#include "common/attention/exp2_polynomial.cuh"
#include "common/attention/row_map.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/types.cuh"
#include "common/warp/products.cuh"
#include "common/warp/reduce.cuh"

constexpr float GROWTH = 8.0f;              // O is not rescaled for less: weights stay below 2^GROWTH
constexpr float LOWEST = -3.402823466e38f;  // a maximum before there are scores: finite, so never NaN

/// What a warp knows of its rows so far: D tiles of 8 columns of O, not yet divided by the sums.
template <int M, int D>
struct OnlineTiles {
    OnlineRow rows[2 * M];
    float o[M][D][4] = {};

    __device__ __forceinline__ OnlineTiles()
    {
#pragma unroll
        for (int r = 0; r < 2 * M; ++r) rows[r].maximum = LOWEST;
    }
};

/// Hides the keys that rows do not see. `first_row`, `first_key`: the lane's. Of the columns' pieces of 8, the warp has
/// those of one of SHARERS.
template <int SHARERS, bool CAUSAL, bool PACKED, int M, int N>
__device__ __forceinline__ void hide_keys_of_rows(float (&s)[M][N][4], const Scores<CAUSAL>& scores,
                                                  const RowMap<PACKED>& map, int first_row, int first_key)
{
    const int first_beyond = scores.beyond(map.query(first_row), first_key);
#pragma unroll
    for (int r = 0; r < 2 * M; ++r) {
        const int beyond = PACKED ? scores.beyond(map.query(first_row + 8 * r), first_key)
                                  : first_beyond + 8 * r * Scores<CAUSAL>::BEYOND_NEXT_QUERY;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (beyond + 8 * nth_piece<SHARERS>(n) + e > 0) s[r / 2][n][r % 2 * 2 + e] = minus_infinity();
    }
}

/// The highest score of each row among the lane's.
template <int M, int N>
__device__ __forceinline__ void find_highest(float (&highest)[2 * M], const float (&s)[M][N][4])
{
#pragma unroll
    for (int r = 0; r < 2 * M; ++r) {
        highest[r] = s[r / 2][0][r % 2 * 2];
#pragma unroll
        for (int n = 0; n < N; ++n)
            highest[r] = fmaxf(highest[r], fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
    }
}

/// Where a row's highest score has grown much, raises the warp's maxima and rescales what was summed before.
template <bool CAUSAL, int M, int D>
__device__ __forceinline__ void raise_maxima(OnlineTiles<M, D>& state, const float (&highest)[2 * M],
                                             const Scores<CAUSAL>& scores)
{
    bool grows = false;
#pragma unroll
    for (int r = 0; r < 2 * M; ++r) grows = grows || scores.base2(highest[r]) > state.rows[r].maximum + GROWTH;
    if (!__any_sync(ALL_LANES, grows)) return;
#pragma unroll
    for (int r = 0; r < 2 * M; ++r) {
        const float factor = state.rows[r].raise(scores.base2(reduce_lanes<Max, 1, 4>(highest[r])));
#pragma unroll
        for (int d = 0; d < D; ++d) {
            state.o[r / 2][d][r % 2 * 2] *= factor;
            state.o[r / 2][d][r % 2 * 2 + 1] *= factor;
        }
    }
}

/// P, the weights of S, for 16 keys from `key` on, as A operands. Of every four exponentials FMA units compute POLYNOMIAL,
/// as exactly as the log-sum-exp has to be. A row's sum takes the lane's columns alone: lanes are added up at the end.
template <class T, int POLYNOMIAL, bool CAUSAL, int M, int N, int D>
__device__ __forceinline__ void weigh(uint32_t (&p)[M][4], const float (&s)[M][N][4], int key, OnlineTiles<M, D>& state,
                                      const Scores<CAUSAL>& scores)
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            OnlineRow& row = state.rows[2 * m + i % 2];
            const float(&pair)[4] = s[m][key / 8 + i / 2];
            const float low = scores.weight(pair[i % 2 * 2], row.maximum);
            const bool by_polynomial = i / 2 >= 2 - POLYNOMIAL;
            const float high = by_polynomial ? exp2_polynomial<4>(fmaf(pair[i % 2 * 2 + 1], scores.scale_base2, -row.maximum))
                                             : scores.weight(pair[i % 2 * 2 + 1], row.maximum);
            row.sum += low + high;
            p[m][i] = pack<T>(low, high);
        }
}

/// Writes the log-sum-exp of the warp's rows: four lanes have a row's sum, so each of them takes every fourth row.
template <bool CAUSAL, bool PACKED, int M, int D>
__device__ __forceinline__ void write_log_sums(float* lse, const OnlineTiles<M, D>& state, const RowMap<PACKED>& map,
                                               const Scores<CAUSAL>& scores, int batch, int NH, int first_row)
{
    const int turn = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < 2 * M; r += 4) {
        OnlineRow mine = state.rows[r];
#pragma unroll
        for (int i = 1; i < 4 && r + i < 2 * M; ++i)
            if (turn == i) mine = state.rows[r + i];
        const int row = first_row + 8 * (r + turn);
        if (r + turn >= 2 * M || row >= map.count) continue;
        lse[(static_cast<long long>(batch) * NH + map.head(row)) * scores.T + map.query(row)] =
            scores.keys_seen(map.query(row)) > 0 ? scores.log_sum_exp(mine) : minus_infinity();
    }
}
