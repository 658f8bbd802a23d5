// autotune: softmax_backward/block_per_row: a block a row: the row lies in shared memory tile by tile, and every thread sums over it for its own elements
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: THREADS=32 COLUMNS=8 TILE=1024 PRODUCTS=True UNROLL=4 REVERSE=True GRID_MAP=x=rows,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          752905d029fd6f38

#include "common/attention/score.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int THREADS = 32;
constexpr int COLUMNS = 8;      // elements a thread computes at a time
constexpr int TILE = 1024;         // keys in shared memory
constexpr int UNROLL = 4;
constexpr int WIDTH = 4;         // keys that one instruction reads from shared memory

/// dS[i, j] = scale * sum over k of P[i, k] * (1 if j = k else 0, minus P[i, j]) * dP[i, k].
extern "C" __global__ void __launch_bounds__(THREADS)
softmax_gradient(View<element, 4> weights, View<element, 4> d_weights, View<element, 4> d_scores, int T, int T_kv,
                 float scale)
{
    __shared__ __align__(16) float products[TILE];
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int row = T - 1 - blockIdx.x;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const int seen = mask.keys_seen(row);
    const element* const p = matrix_of(weights, batch, head) + row * weights.stride[2];
    const element* const dp = matrix_of(d_weights, batch, head) + row * d_weights.stride[2];
    element* const ds = matrix_of(d_scores, batch, head) + row * d_scores.stride[2];

#pragma unroll 1
    for (int first = 0; first < T_kv; first += THREADS * COLUMNS) {
        // This thread's elements are first + c * THREADS + its number. An element's own term, where j = k, needs no
        // comparison: it is where its sum begins.
        float own[COLUMNS];
        float sum[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            const int col = first + c * THREADS + threadIdx.x;
            own[c] = col < seen ? to_float(p[col * weights.stride[3]]) : 0.0f;
            sum[c] = col < seen ? own[c] * to_float(dp[col * d_weights.stride[3]]) : 0.0f;
        }
#pragma unroll 1
        for (int begin = 0; begin < seen && first < seen; begin += TILE) {
            const int keys = min(TILE, seen - begin);
            if (first == 0 || seen > TILE) {  // a row that fits stays there
                __syncthreads();              // the tile before has been read
#pragma unroll 4
                for (int k = threadIdx.x; k < (keys + WIDTH - 1) / WIDTH * WIDTH; k += THREADS) {
                    const bool exists = k < keys;
                    const float weight = exists ? to_float(p[(begin + k) * weights.stride[3]]) : 0.0f;
                    const float gradient = exists ? to_float(dp[(begin + k) * d_weights.stride[3]]) : 0.0f;
                    products[k] = weight * gradient;
                }
                __syncthreads();
            }
#pragma unroll UNROLL
            for (int k = 0; k < keys; k += WIDTH) {
                float product[WIDTH];
                load<WIDTH>(products + k, product);
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
#pragma unroll
                    for (int c = 0; c < COLUMNS; ++c) sum[c] -= product[e] * own[c];
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
// launch softmax_gradient grid=(1024, 12, 4) block=(32, 1, 1) smem=0 (weights, d_weights, d_scores, T, T_kv, scale)
