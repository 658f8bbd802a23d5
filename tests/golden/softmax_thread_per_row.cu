// autotune: softmax/thread_per_row: a thread a row, in three passes or online; rows read where they are or by way of shared memory
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: THREADS=64 PASSES=online STAGED=33 columns UNROLL=4 LOADS=cached STORES=cached REVERSE=True GRID_MAP=x=rows,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          394c31c70d75e9ca

#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int THREADS = 64;
constexpr int UNROLL = 4;
constexpr Access LOADS = Access::CACHED;
constexpr Access STORES = Access::CACHED;
constexpr int TILE = 32;                   // keys of a tile, which holds the rows of a warp
constexpr int TILE_ROW = 33;               // with 33 neighbouring rows begin in other banks

extern "C" __global__ void __launch_bounds__(THREADS)
row_softmax(View<element, 4> scores, View<element, 4> weights, int T, int T_kv, float scale)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int row = blockIdx.x * THREADS + threadIdx.x;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const element* const from = matrix_of(scores, batch, head);
    element* const to = matrix_of(weights, batch, head);
    const auto query_of = [&](int r) { return T - 1 - r; };
    const int seen = row < T ? mask.keys_seen(query_of(row)) : 0;

    extern __shared__ __align__(16) unsigned char smem[];
    float* const tile = reinterpret_cast<float*>(smem) + threadIdx.x / 32 * 32 * TILE_ROW;
    const int lane = threadIdx.x % 32;
    const int warp_row = row - lane;  // the warp's first row
    if (warp_row >= T) return;
    const int warp_rows = min(32, T - warp_row);
    const int warp_seen = mask.keys_seen(max(query_of(warp_row), query_of(warp_row + warp_rows - 1)));

    // Lanes read a tile row by row, each its own column; then each goes through its own row of it.
    const auto stage = [&](int tile_begin) {
        const int key = tile_begin + lane;
        __syncwarp();  // what was there has been read
#pragma unroll UNROLL
        for (int r = 0; r < warp_rows; ++r) {
            const int query = query_of(warp_row + r);
            float score[1] = {};
            if (key < mask.keys_seen(query))
                read_row<LOADS, 1>(from + query * scores.stride[2] + key * scores.stride[3], score);
            tile[r * TILE_ROW + lane] = mask.base2(score[0]);
        }
        __syncwarp();
    };
    const auto for_keys = [&](auto use) {
#pragma unroll 1
        for (int begin = 0; begin < warp_seen; begin += TILE) {
            stage(begin);
#pragma unroll UNROLL
            for (int key = begin; key < min(begin + TILE, seen); ++key) use(key, tile[lane * TILE_ROW + key - begin]);
        }
    };

    OnlineRow total;
    for_keys([&](int, float score) {
        total.raise(score);
        total.sum += exp2_fast(score - total.origin());
    });
    const float factor = seen > 0 ? 1.0f / total.sum : 0.0f;

#pragma unroll 1
    for (int begin = 0; begin < T_kv; begin += TILE) {
        if (begin < warp_seen) stage(begin);
#pragma unroll UNROLL
        for (int k = 0; k < TILE; ++k) {
            float* const place = tile + lane * TILE_ROW + k;
            *place = begin + k < seen ? exp2_fast(*place - total.origin()) * factor : 0.0f;
        }
        __syncwarp();
        if (begin + lane < T_kv) {
#pragma unroll UNROLL
            for (int r = 0; r < warp_rows; ++r) {
                const float weight[1] = {tile[r * TILE_ROW + lane]};
                element* const result = to + query_of(warp_row + r) * weights.stride[2];
                write_row<STORES, 1>(result + (begin + lane) * weights.stride[3], weight);
            }
        }
        __syncwarp();
    }
}

// buffer scores: 50331648 fp16, input
// buffer weights: 50331648 fp16, output
// launch row_softmax grid=(16, 12, 4) block=(64, 1, 1) smem=8448 (scores, weights, T, T_kv, scale)
