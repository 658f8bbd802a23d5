// autotune: softmax_backward/thread_per_element: a thread an element, a column or a row: every element sums over its row again; what the grid spreads out is a choice
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: THREADS=32 THREAD=column PARALLEL=matrices UNROLL=1 GRID_MAP=x=threads,y=others,z=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          f2923dbba3ad0cac

#include "common/attention/score.cuh"
#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int THREADS = 32;
constexpr int UNROLL = 1;

/// Sum over k < seen of P[k] * (1 if k = col else 0, minus P[col]) * dP[k].
template <class Row>
__device__ __forceinline__ float element_of_row(Row p, Row dp, int col, int seen)
{
    const float own = p[col];
    float sum = 0.0f;
#pragma unroll UNROLL
    for (int key = 0; key < seen; ++key) sum += p[key] * ((key == col ? 1.0f : 0.0f) - own) * dp[key];
    return sum;
}

/// dS[i, j] = scale * sum over k of P[i, k] * (1 if j = k else 0, minus P[i, j]) * dP[i, k].
extern "C" __global__ void __launch_bounds__(THREADS)
softmax_gradient(View<element, 4> weights, View<element, 4> d_weights, View<element, 4> d_scores, int matrices, int NH,
                 int T, int T_kv, float scale)
{
    const int mine = blockIdx.x * THREADS + threadIdx.x;
    if (mine >= T_kv) return;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const bool contiguous = weights.stride[3] == 1 && d_weights.stride[3] == 1;

    (void)matrices;
    const int matrix = blockIdx.z;
    {
        const element* const p = matrix_of(weights, matrix / NH, matrix % NH);
        const element* const dp = matrix_of(d_weights, matrix / NH, matrix % NH);
        element* const ds = matrix_of(d_scores, matrix / NH, matrix % NH);
#pragma unroll 1
        for (int other = 0; other < T; ++other) {
            const int row = other;
            const int col = mine;
            const int seen = mask.keys_seen(row);
            const element* const p_row = p + row * weights.stride[2];
            const element* const dp_row = dp + row * d_weights.stride[2];
            float sum = 0.0f;
            if (col < seen && contiguous) {
                using Row = ElementRow<element, true>;
                sum = element_of_row(Row{p_row, 1}, Row{dp_row, 1}, col, seen);
            } else if (col < seen) {
                using Row = ElementRow<element, false>;
                sum = element_of_row(Row{p_row, weights.stride[3]}, Row{dp_row, d_weights.stride[3]}, col, seen);
            }
            ds[row * d_scores.stride[2] + col * d_scores.stride[3]] = from_float<element>(mask.score_gradient(sum));
        }
    }
}

// buffer weights: 50331648 fp16, input
// buffer d_weights: 50331648 fp16, input
// buffer d_scores: 50331648 fp16, output
// launch softmax_gradient grid=(32, 1, 48) block=(32, 1, 1) smem=0 (weights, d_weights, d_scores, B * NH, NH, T, T_kv, scale)
