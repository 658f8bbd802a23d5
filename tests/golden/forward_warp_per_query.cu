// autotune: forward/warp_per_query: one kernel, a warp a query or a few: a lane a key, warp reductions, K and V in padded shared memory
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: WARPS=8 QUERIES=2 BLOCK_N=64 SMEM_PAD=1 REDUCE=shuffle UNROLL=4 VEC=4 REVERSE=True GRID_MAP=x=matrix,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          e061b2d7cdc857dc

#include "common/reduce.cuh"
#include "common/score.cuh"
#include "common/softmax.cuh"
#include "common/tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr bool CAUSAL = true;
constexpr int WARPS = 8;
constexpr int QUERIES = 2;  // a warp
constexpr int BLOCK_N = 64;  // keys in shared memory
constexpr int ROW = HS + 1;  // floats between the rows of K and V in shared memory
constexpr int UNROLL = 4;
constexpr int VEC = 4;      // elements a read of K and V

constexpr int THREADS = 32 * WARPS;
constexpr int COLS = (HS + 31) / 32;  // of O a lane: its number, its number + 32, ...

/// Combines x over the warp.
template <class Op>
__device__ __forceinline__ float reduce_query(float x)
{
    return reduce_warp<Op>(x);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ lse, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const k_tile = reinterpret_cast<float*>(smem);
    float* const v_tile = k_tile + BLOCK_N * ROW;
    float* const own_queries = v_tile + BLOCK_N * ROW + threadIdx.x / 32 * QUERIES * HS;

    const int grid_tile = blockIdx.x;
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int tile = (T + WARPS * QUERIES - 1) / (WARPS * QUERIES) - 1 - grid_tile;
    const int lane = threadIdx.x % 32;
    const int first = tile * WARPS * QUERIES + threadIdx.x / 32 * QUERIES;  // this warp's first query
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const element* const queries = matrix_of(q, batch, head);
    const element* const keys = matrix_of(k, batch, head / (NH / NH_kv));
    const element* const values = matrix_of(v, batch, head / (NH / NH_kv));
    const bool vectors_k = allows_vectors<VEC>(k);
    const bool vectors_v = allows_vectors<VEC>(v);

    int seen[QUERIES];
    int longest = 0;
#pragma unroll
    for (int i = 0; i < QUERIES; ++i) {
        const int query = first + i;
        seen[i] = query < T ? scores.keys_seen(query) : 0;
        longest = max(longest, seen[i]);
        for (int d = lane; d < HS; d += 32)
            own_queries[i * HS + d] = query < T ? to_float(queries[query * q.stride[2] + d * q.stride[3]]) : 0.0f;
    }
    __syncwarp();

    OnlineRow rows[QUERIES];  // maxima of the warp, sums of this lane's keys
    float o[QUERIES][COLS] = {};
    const int key_end = scores.keys_seen(min((tile + 1) * WARPS * QUERIES, T) - 1);
#pragma unroll 1
    for (int tile_begin = 0; tile_begin < key_end; tile_begin += BLOCK_N) {
        __syncthreads();  // the tiles before have been read
        stage<BLOCK_N, HS, ROW, VEC, THREADS>(k_tile, keys + tile_begin * k.stride[2], k.stride[2], k.stride[3],
                                              T_kv - tile_begin, vectors_k);
        stage<BLOCK_N, HS, ROW, VEC, THREADS>(v_tile, values + tile_begin * v.stride[2], v.stride[2], v.stride[3],
                                              T_kv - tile_begin, vectors_v);
        __syncthreads();
#pragma unroll 1
        for (int part = 0; part < BLOCK_N; part += 32) {
            const int key_begin = tile_begin + part;
            if (key_begin >= longest) break;
            float dot[QUERIES] = {};
#pragma unroll UNROLL
            for (int d = 0; d < HS; ++d) {
                const float own_key = k_tile[(part + lane) * ROW + d];
#pragma unroll
                for (int i = 0; i < QUERIES; ++i) dot[i] += own_queries[i * HS + d] * own_key;
            }
            float weight[QUERIES];
#pragma unroll
            for (int i = 0; i < QUERIES; ++i) {
                const bool visible = key_begin + lane < seen[i];
                const float score = visible ? scores.base2(dot[i]) : minus_infinity();
                const float factor = rows[i].raise(reduce_query<Max>(score));
                weight[i] = visible ? exp2_fast(score - rows[i].origin()) : 0.0f;
                rows[i].sum += weight[i];
#pragma unroll
                for (int c = 0; c < COLS; ++c) o[i][c] *= factor;
            }
            const int count = min(32, T_kv - key_begin);
#pragma unroll UNROLL
            for (int j = 0; j < count; ++j) {
                float value[COLS];
#pragma unroll
                for (int c = 0; c < COLS; ++c)
                    value[c] = c * 32 + lane < HS ? v_tile[(part + j) * ROW + c * 32 + lane] : 0.0f;
#pragma unroll
                for (int i = 0; i < QUERIES; ++i) {
                    const float of_key = __shfl_sync(ALL_LANES, weight[i], j);
                    if (key_begin + j >= seen[i]) continue;  // 0 times NaN would be NaN
#pragma unroll
                    for (int c = 0; c < COLS; ++c) o[i][c] += of_key * value[c];
                }
            }
        }
    }

    element* const result = matrix_of(out, batch, head);
#pragma unroll
    for (int i = 0; i < QUERIES; ++i) {
        rows[i].sum = reduce_query<Sum>(rows[i].sum);
        const int query = first + i;
        if (query >= T) continue;
        if (lane == 0)
            lse[(static_cast<long long>(batch) * NH + head) * T + query] = rows[i].log_sum_exp();
        const float factor = rows[i].sum == 0.0f ? 0.0f : 1.0f / rows[i].sum;  // a row without keys is 0
#pragma unroll
        for (int c = 0; c < COLS; ++c) {
            const int d = c * 32 + lane;
            if (d < HS) result[query * out.stride[2] + d * out.stride[3]] = from_float<element>(o[i][c] * factor);
        }
    }
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// launch attention_forward grid=(64, 12, 4) block=(256, 1, 1) smem=37376 (q, k, v, out, lse, NH, NH_kv, T, T_kv, scale)
