// What all blocks of a backward pass work on.
#pragma once

#include "common/attention/row_sums.cuh"
#include "common/view.cuh"

template <class Element>
struct GradientOperands {
    View<Element, 4> q;
    View<Element, 4> k;
    View<Element, 4> v;
    View<Element, 4> dout;
    const RowSums* row_sums;  // of `rows` queries a head
    int NH;
    int NH_kv;
    int T;
    int T_kv;
    int rows;
    float scale;

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
