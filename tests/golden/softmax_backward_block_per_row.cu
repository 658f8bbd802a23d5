// autotune: softmax_backward/block_per_row: a block a row: the row lies in shared memory tile by tile, and every thread sums over it for its own elements
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: THREADS=256 COLUMNS=4 TILE=256 PRODUCTS=False UNROLL=4 REVERSE=True GRID_MAP=x=rows,y=head_batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          82f0fa012e7a88d0

#include "common/score.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int THREADS = 256;
constexpr int COLUMNS = 4;      // elements a thread computes at a time
constexpr int TILE = 256;         // keys in shared memory
constexpr int UNROLL = 4;

/// dS[i, j] = scale * sum over k of P[i, k] * (1 if j = k else 0, minus P[i, j]) * dP[i, k].
extern "C" __global__ void __launch_bounds__(THREADS)
softmax_gradient(View<element, 4> weights, View<element, 4> d_weights, View<element, 4> d_scores, int NH, int T,
                 int T_kv, float scale)
{
    __shared__ float p_tile[TILE];
    __shared__ float dp_tile[TILE];
    const int matrix = blockIdx.y;
    const int grid_row = blockIdx.x;
    const int row = T - 1 - grid_row;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const int seen = mask.keys_seen(row);
    const element* const p = matrix_of(weights, matrix / NH, matrix % NH) + row * weights.stride[2];
    const element* const dp = matrix_of(d_weights, matrix / NH, matrix % NH) + row * d_weights.stride[2];
    element* const ds = matrix_of(d_scores, matrix / NH, matrix % NH) + row * d_scores.stride[2];

#pragma unroll 1
    for (int first = 0; first < T_kv; first += THREADS * COLUMNS) {
        // This thread's elements are first + c * THREADS + its number.
        float own[COLUMNS];
        float sum[COLUMNS] = {};
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int col = first + c * THREADS + threadIdx.x;
            own[c] = col < seen ? to_float(p[col * weights.stride[3]]) : 0.0f;
        }
        if (first < seen) {
#pragma unroll 1
            for (int begin = 0; begin < seen; begin += TILE) {
                const int keys = min(TILE, seen - begin);
                __syncthreads();  // the tile before has been read
#pragma unroll 1
                for (int k = threadIdx.x; k < keys; k += THREADS) {
                    const float weight = to_float(p[(begin + k) * weights.stride[3]]);
                    const float gradient = to_float(dp[(begin + k) * d_weights.stride[3]]);
                    p_tile[k] = weight;
                    dp_tile[k] = gradient;
                }
                __syncthreads();
#pragma unroll UNROLL
                for (int k = 0; k < keys; ++k) {
                    const float product = p_tile[k] * dp_tile[k];
#pragma unroll
                    for (int c = 0; c < COLUMNS; ++c) {
                        const bool itself = begin + k == first + c * THREADS + static_cast<int>(threadIdx.x);
                        sum[c] += product * ((itself ? 1.0f : 0.0f) - own[c]);
                    }
                }
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int col = first + c * THREADS + threadIdx.x;
            const float gradient = col < seen ? mask.score_gradient(sum[c]) : 0.0f;
            if (col < T_kv) ds[col * d_scores.stride[3]] = from_float<element>(gradient);
        }
    }
}

// buffer weights: 50331648 fp16, input
// buffer d_weights: 50331648 fp16, input
// buffer d_scores: 50331648 fp16, output
// launch softmax_gradient grid=(1024, 48, 1) block=(256, 1, 1) smem=0 (weights, d_weights, d_scores, NH, T, T_kv, scale)
