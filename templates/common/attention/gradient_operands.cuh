// What all blocks of a backward pass work on.
#pragma once

#include "common/attention/exact.cuh"
#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"
#include "common/view.cuh"

template <class Element, int HS, bool CAUSAL, int HS_V = HS>
struct GradientOperands {
    View<Element, 4> q;
    View<Element, 4> k;
    View<Element, 4> v;
    View<Element, 4> out;
    View<Element, 4> dout;
    const float* lse;
    const RowSums* row_sums;  // of `rows` queries a head
    int NH;
    int NH_kv;
    int T;
    int T_kv;
    int rows;
    float scale;

    /// What computes single rows again.
    __device__ __forceinline__ ExactGradients<HS, CAUSAL, Element, HS_V> exact() const
    {
        return {read_only(q), read_only(k), read_only(v), read_only(out),           read_only(dout),
                lse,          NH,           NH / NH_kv,   Scores<CAUSAL>(T, T_kv, scale)};
    }

    /// A query's number among all those that have row sums.
    __device__ __forceinline__ long long number(int batch, int head, int query) const
    {
        return (static_cast<long long>(batch) * NH + head) * rows + query;
    }

    __device__ __forceinline__ const RowSums* sums_of(int batch, int head, int query) const
    {
        return row_sums + number(batch, head, query);
    }
};
