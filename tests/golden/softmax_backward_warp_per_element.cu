// autotune: softmax_backward/warp_per_element: a warp or a part of one an element: lanes share the sum over the row
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: LANES=32 THREADS=256 REDUCE=cooperative_groups UNROLL=8 DIAGONAL=split REVERSE=False GRID_MAP=x=columns,y=rows,z=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          30c2e17715fce031

#include "common/cooperative_reduce.cuh"
#include "common/reduce.cuh"
#include "common/score.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int LANES = 32;          // that share an element
constexpr int THREADS = 256;
constexpr int COLS = THREADS / LANES;       // elements a block
constexpr int UNROLL = 8;

/// Sums x over the lanes of an element.
__device__ __forceinline__ float sum_lanes(float x)
{
    return reduce_tile<Sum, LANES>(x);
}

/// dS[i, j] = scale * sum over k of P[i, k] * (1 if j = k else 0, minus P[i, j]) * dP[i, k].
extern "C" __global__ void __launch_bounds__(THREADS)
softmax_gradient(View<element, 4> weights, View<element, 4> d_weights, View<element, 4> d_scores, int NH, int T,
                 int T_kv, float scale)
{
    const int matrix = blockIdx.z;
    const int grid_row = blockIdx.y;
    const int grid_col = blockIdx.x;
    const int row = grid_row;
    const int col = grid_col * COLS + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const int seen = col < T_kv ? mask.keys_seen(row) : 0;
    const element* const p = matrix_of(weights, matrix / NH, matrix % NH) + row * weights.stride[2];
    const element* const dp = matrix_of(d_weights, matrix / NH, matrix % NH) + row * d_weights.stride[2];
    const auto product = [&](int key) {
        return to_float(p[key * weights.stride[3]]) * to_float(dp[key * d_weights.stride[3]]);
    };

    float sum = 0.0f;
    if (col < seen) {
        const float own = to_float(p[col * weights.stride[3]]);
        int key = lane;
#pragma unroll UNROLL
        for (; key < col; key += LANES) sum -= product(key) * own;
        if (key == col) {
            sum += product(key) * (1.0f - own);
            key += LANES;
        }
#pragma unroll UNROLL
        for (; key < seen; key += LANES) sum -= product(key) * own;
    }
    sum = sum_lanes(sum);
    if (lane == 0 && col < T_kv)
        matrix_of(d_scores, matrix / NH, matrix % NH)[row * d_scores.stride[2] + col * d_scores.stride[3]] =
            from_float<element>(mask.score_gradient(sum));
}

// buffer weights: 50331648 fp16, input
// buffer d_weights: 50331648 fp16, input
// buffer d_scores: 50331648 fp16, output
// launch softmax_gradient grid=(128, 1024, 48) block=(256, 1, 1) smem=0 (weights, d_weights, d_scores, NH, T, T_kv, scale)
