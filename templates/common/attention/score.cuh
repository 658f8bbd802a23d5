// What happens to a score between q·k and the softmax: the scale and the mask. Every family of attention kernels
// asks this header which keys a query sees, so that a new kind of score is written once.
#pragma once

#include "common/attention/softmax.cuh"

/// Scores of one (batch, head) matrix: T queries by T_kv keys. A causal mask is aligned bottom-right: query i sees
/// key j if j <= i + T_kv - T, so the last query sees every key and the first T - T_kv queries may see none.
template <bool CAUSAL>
struct Scores {
    int T;
    int T_kv;
    float scale;
    float scale_base2;

    __device__ __forceinline__ Scores(int T_, int T_kv_, float scale_)
        : T(T_), T_kv(T_kv_), scale(scale_), scale_base2(scale_ * LOG2_E)
    {
    }

    /// Keys past which no query up to `query` sees anything; 0 where those queries see no key at all.
    __device__ __forceinline__ int keys_seen(int query) const
    {
        if constexpr (CAUSAL) return max(0, min(T_kv, query + T_kv - T + 1));
        return T_kv;
    }

    /// The first query that sees `key`; queries before it do not. T or more where no query sees it.
    __device__ __forceinline__ int first_query(int key) const
    {
        if constexpr (CAUSAL) return max(0, key + T - T_kv);
        return 0;
    }

    /// Whether `query` sees `key`. Positions outside the matrix are not visible.
    __device__ __forceinline__ bool visible(int query, int key) const
    {
        if constexpr (CAUSAL) {
            if (key > query + T_kv - T) return false;
        }
        return query < T && key < T_kv;
    }

    /// How far `key` lies beyond the last key that `query`, one of the matrix, sees: the pair is visible unless this is
    /// positive. One more for the next key; for the next query, BEYOND_NEXT_QUERY more.
    __device__ __forceinline__ int beyond(int query, int key) const
    {
        return CAUSAL ? key - (query + T_kv - T) : key - (T_kv - 1);
    }
    static constexpr int BEYOND_NEXT_QUERY = CAUSAL ? -1 : 0;

    /// Whether every query in [query, query_end) sees every key in [key, key_end): the tile needs no mask.
    __device__ __forceinline__ bool all_visible(int query, int query_end, int key, int key_end) const
    {
        (void)key;
        return query_end <= T && key_end <= keys_seen(query);
    }

    /// The score of a visible pair in base 2: its weight before normalisation is exp2(score).
    __device__ __forceinline__ float base2(float dot) const { return dot * scale_base2; }

    /// The weight of a visible pair before normalisation, exp2(base2(dot) - origin): one multiply-add, one exponential.
    __device__ __forceinline__ float weight(float dot, float origin) const
    {
        return exp2_fast(fmaf(dot, scale_base2, -origin));
    }

    /// A row's (natural) log-sum-exp as the origin of `weight`, which then is normalised. `scale_base2` is rounded: `rest`
    /// is what LOG2_E lacks to go from `scale` to it. Infinities stay.
    __device__ __forceinline__ float origin_of(float log_sum) const
    {
        const float rest = __fdividef(fmaf(-scale, LOG2_E, scale_base2), scale);
        return fmaf(log_sum, LOG2_E, fabsf(log_sum) < -minus_infinity() ? log_sum * rest : 0.0f);
    }

    /// The normalised weight of a visible pair: the difference to the row's (natural) log-sum-exp is taken before anything
    /// is rounded, for where both are large nothing else of them matters.
    __device__ __forceinline__ float probability(float dot, float log_sum) const
    {
        return exp2_fast(fmaf(dot, scale, -log_sum) * LOG2_E);
    }

    /// The natural logarithm of a row's sum of exponentials; -inf for a row without keys. `scale_base2` is rounded:
    /// `rest` is what LN_2 lacks to go back from it to `scale`.
    __device__ __forceinline__ float log_sum_exp(const OnlineRow& row) const
    {
        if (row.sum == 0.0f) return minus_infinity();
        const float rest = __fdividef(fmaf(-LN_2, scale_base2, scale), scale_base2);
        return fmaf(row.maximum, LN_2, fmaf(row.maximum, rest, log2f(row.sum) * LN_2));
    }

    /// From the gradient of the (natural) score to the gradient of q·k.
    __device__ __forceinline__ float score_gradient(float gradient) const { return gradient * scale; }
};
