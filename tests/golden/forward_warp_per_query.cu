// autotune: forward/warp_per_query: one kernel, a warp a query or a few: a lane a key, warp reductions, K and V in padded shared memory
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: WARPS=8 QUERIES=8 BLOCK_N=64 SMEM_PAD=4 REDUCE=shuffle WEIGHTS=shared UNROLL=4 VEC=4 REVERSE=True GRID_MAP=x=matrix,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          0653b5bd72184c66

#include "common/attention/exact.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/tile/staged.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int HS_V = 64;  // of V and O
constexpr bool CAUSAL = true;
constexpr int WARPS = 8;
constexpr int QUERIES = 8;  // a warp
constexpr int BLOCK_N = 64;  // keys in shared memory
constexpr int ROW = HS + 4;  // floats between the rows of K in shared memory
constexpr int V_ROW = HS_V + 4;  // and of V
constexpr int UNROLL = 4;
constexpr int VEC = 4;      // elements a read of K and V

constexpr int THREADS = 32 * WARPS;
constexpr int COLS = (HS_V + 31) / 32;  // of O a lane: its number, its number + 32, ...
constexpr int WIDTH = 4;  // columns of Q and K, and weights, that are taken at a time

/// Combines x over the warp.
template <class Op>
__device__ __forceinline__ float reduce_query(float x)
{
    return reduce_warp<Op>(x);
}

/// WIDTH neighbours in shared memory, by the widest reads that rows of ROW floats allow.
__device__ __forceinline__ void read_key(const float* from, float (&to)[WIDTH])
{
    constexpr int AT_ONCE = float_width(ROW);
#pragma unroll
    for (int e = 0; e < WIDTH; e += AT_ONCE) {
        float part[AT_ONCE];
        load<AT_ONCE>(from + e, part);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) to[e + i] = part[i];
    }
}

/// o[i][c] += sum over `count` keys of their weights (a lane has that of key `lane`) times V. MASKED: query i sees the
/// first seen[i] - key_begin of them alone, and what it does not see may be NaN.
template <bool MASKED>
__device__ __forceinline__ void add_values(float (&o)[QUERIES][COLS], const float (&weight)[QUERIES],
                                           const float* own_weights, const float* v_rows, int count, int key_begin,
                                           const int (&seen)[QUERIES])
{
    const int lane = threadIdx.x % 32;
#pragma unroll UNROLL
    for (int j = 0; j < (MASKED ? count : 32); j += WIDTH) {
        float of_keys[QUERIES][WIDTH];
#pragma unroll
        for (int i = 0; i < QUERIES; ++i) {
            load<WIDTH>(own_weights + i * 32 + j, of_keys[i]);
        }
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
            if (MASKED && j + e >= count) break;
            float value[COLS];
#pragma unroll
            for (int c = 0; c < COLS; ++c)
                value[c] = HS_V % 32 == 0 || c * 32 + lane < HS_V ? v_rows[(j + e) * V_ROW + c * 32 + lane] : 0.0f;
#pragma unroll
            for (int i = 0; i < QUERIES; ++i) {
                if (MASKED && key_begin + j + e >= seen[i]) continue;  // 0 times NaN would be NaN
#pragma unroll
                for (int c = 0; c < COLS; ++c) o[i][c] += of_keys[i][e] * value[c];
            }
        }
    }
    (void)weight;
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ lse, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const k_tile = reinterpret_cast<float*>(smem);
    float* const v_tile = k_tile + BLOCK_N * ROW;
    float* const own_queries = v_tile + BLOCK_N * V_ROW + threadIdx.x / 32 * QUERIES * HS;
    float* const own_weights = v_tile + BLOCK_N * V_ROW + WARPS * QUERIES * HS + threadIdx.x / 32 * QUERIES * 32;

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
    int shortest = T_kv;
    int longest = 0;
#pragma unroll
    for (int i = 0; i < QUERIES; ++i) {
        const int query = first + i;
        seen[i] = query < T ? scores.keys_seen(query) : 0;
        shortest = min(shortest, seen[i]);
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
        stage<BLOCK_N, HS_V, V_ROW, VEC, THREADS>(v_tile, values + tile_begin * v.stride[2], v.stride[2], v.stride[3],
                                                  T_kv - tile_begin, vectors_v);
        __syncthreads();
#pragma unroll 1
        for (int part = 0; part < BLOCK_N; part += 32) {
            const int key_begin = tile_begin + part;
            if (key_begin >= longest) break;
            float dot[QUERIES] = {};
#pragma unroll UNROLL
            for (int d = 0; d < HS; d += WIDTH) {
                float own_key[WIDTH];
                read_key(k_tile + (part + lane) * ROW + d, own_key);
#pragma unroll
                for (int i = 0; i < QUERIES; ++i) {
                    float query[WIDTH];
                    load<WIDTH>(own_queries + i * HS + d, query);
#pragma unroll
                    for (int e = 0; e < WIDTH; ++e) dot[i] += query[e] * own_key[e];
                }
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
            __syncwarp();  // the weights before have been read
#pragma unroll
            for (int i = 0; i < QUERIES; ++i) own_weights[i * 32 + lane] = weight[i];
            __syncwarp();
            const float* const v_rows = v_tile + part * V_ROW;
            if (key_begin + 32 <= shortest)
                add_values<false>(o, weight, own_weights, v_rows, 32, key_begin, seen);
            else
                add_values<true>(o, weight, own_weights, v_rows, min(32, T_kv - key_begin), key_begin, seen);
        }
    }

    element* const result = matrix_of(out, batch, head);
#pragma unroll
    for (int i = 0; i < QUERIES; ++i) {
        rows[i].sum = reduce_query<Sum>(rows[i].sum);
        const int query = first + i;
        if (query >= T) continue;
        if (lane == 0)
            lse[(static_cast<long long>(batch) * NH + head) * T + query] = scores.log_sum_exp(rows[i]);
        const float factor = rows[i].sum == 0.0f ? 0.0f : 1.0f / rows[i].sum;  // a row without keys is 0
#pragma unroll
        for (int c = 0; c < COLS; ++c) {
            const int d = c * 32 + lane;
            if (d < HS_V) result[query * out.stride[2] + d * out.stride[3]] = from_float<element>(o[i][c] * factor);
        }
    }

    __syncwarp();  // the warp's rows of O are written
    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k), read_only(v), NH, NH / NH_kv, scores};
#pragma unroll 1
    for (int query = first; query < min(first + QUERIES, T); ++query) exact.mend(out, lse, batch, head, query);
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// launch attention_forward grid=(16, 12, 4) block=(256, 1, 1) smem=59392 (q, k, v, out, lse, NH, NH_kv, T, T_kv, scale)
