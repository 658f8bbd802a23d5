// autotune: softmax_backward/warp_per_element: a warp or a part of one an element or several neighbours: lanes share the sum over the row, row after row
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: LANES=32 COLUMNS=8 ROWS_EACH=64 THREADS=256 REDUCE=cooperative_groups UNROLL=4 DIAGONAL=split REVERSE=True GRID_MAP=x=columns,y=rows,z=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          272df851e1de7158

#include "common/attention/score.cuh"
#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"
#include "common/warp/cooperative_reduce.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int LANES = 32;          // that share an element
constexpr int COLUMNS = 8;         // neighbouring elements of a row that they sum at once
constexpr int THREADS = 256;
constexpr int UNROLL = 4;

/// Sums x over the lanes of an element.
__device__ __forceinline__ float sum_lanes(float x)
{
    return reduce_tile<Sum, LANES>(x);
}

/// This lane's part, for c < COLUMNS, of
///     sum[c] = sum over k < seen of P[k] * (1 if k = col + c else 0, minus P[col + c]) * dP[k].
template <class Row>
__device__ __forceinline__ void add_up(float (&sum)[COLUMNS], Row p, Row dp, int col, int seen)
{
    float own[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) own[c] = col + c < seen ? p[col + c] : 0.0f;
    const auto add = [&](int key) {
        const float product = p[key] * dp[key];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) sum[c] += product * ((key == col + c ? 1.0f : 0.0f) - own[c]);
    };
    int key = threadIdx.x % LANES;
    // Keys that are none of the elements' own need no comparison; all lanes take as many of them.
    const auto add_others = [&](int other) {
        const float product = p[other] * dp[other];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) sum[c] -= product * own[c];
    };
    const int own_begin = col / LANES * LANES;
    const int own_end = min(seen, (col + COLUMNS + LANES - 1) / LANES * LANES);
#pragma unroll UNROLL
    for (; key < own_begin; key += LANES) add_others(key);
#pragma unroll 1
    for (; key < own_end; key += LANES) add(key);
#pragma unroll UNROLL
    for (; key < seen; key += LANES) add_others(key);
}

/// Elements (row, col) to (row, col + COLUMNS - 1) of a matrix.
template <class Row>
__device__ __forceinline__ void elements_of_row(Row p, Row dp, element* ds, long long stride, int col, int row,
                                                const Scores<CAUSAL>& mask)
{
    const int lane = threadIdx.x % LANES;
    const int first_of_warp = col - threadIdx.x % 32 / LANES * COLUMNS;
    const int seen = mask.keys_seen(row);
    float gradient = 0.0f;
    if (first_of_warp < seen) {  // the same for all lanes: they meet in the reduction
        float sum[COLUMNS] = {};
        if (col < seen) add_up(sum, p, dp, col, seen);
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const float whole = sum_lanes(sum[c]);
            if (lane == c) gradient = whole;
        }
        gradient = col + lane < seen ? mask.score_gradient(gradient) : 0.0f;
    }
    if (lane < COLUMNS && col + lane < mask.T_kv) ds[(col + lane) * stride] = from_float<element>(gradient);
}

/// dS[i, j] = scale * sum over k of P[i, k] * (1 if j = k else 0, minus P[i, j]) * dP[i, k].
extern "C" __global__ void __launch_bounds__(THREADS)
softmax_gradient(View<element, 4> weights, View<element, 4> d_weights, View<element, 4> d_scores, int NH, int T,
                 int T_kv, float scale)
{
    const int matrix = blockIdx.z;
    const int col = (blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES) * COLUMNS;
    constexpr int ROWS_EACH = 64;
    const int row_block = gridDim.y - 1 - blockIdx.y;
    const int row_begin = row_block * ROWS_EACH;
    const int row_end = min(row_begin + ROWS_EACH, T);
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const element* const p = matrix_of(weights, matrix / NH, matrix % NH);
    const element* const dp = matrix_of(d_weights, matrix / NH, matrix % NH);
    element* const ds = matrix_of(d_scores, matrix / NH, matrix % NH);
    const bool contiguous = weights.stride[3] == 1 && d_weights.stride[3] == 1;

#pragma unroll 1
    for (int row = row_begin; row < row_end; ++row) {
        const element* const p_row = p + row * weights.stride[2];
        const element* const dp_row = dp + row * d_weights.stride[2];
        element* const ds_row = ds + row * d_scores.stride[2];
        if (contiguous) {
            using Row = ElementRow<element, true>;
            elements_of_row(Row{p_row, 1}, Row{dp_row, 1}, ds_row, d_scores.stride[3], col, row, mask);
        } else {
            using Row = ElementRow<element, false>;
            elements_of_row(Row{p_row, weights.stride[3]}, Row{dp_row, d_weights.stride[3]}, ds_row,
                            d_scores.stride[3], col, row, mask);
        }
    }
}

// buffer weights: 50331648 fp16, input
// buffer d_weights: 50331648 fp16, input
// buffer d_scores: 50331648 fp16, output
// launch softmax_gradient grid=(16, 16, 48) block=(256, 1, 1) smem=0 (weights, d_weights, d_scores, NH, T, T_kv, scale)
