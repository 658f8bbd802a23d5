// autotune: forward/unfused: three kernels: scores to memory, softmax of their rows, output
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=64 BLOCK_N=64 BLOCK_K=32 THREADS=128 LANES_N=16 UNROLL=2 SMEM_PAD=4 VEC=4 ROW_THREADS=32 ROW_UNROLL=4 SKIP_MASKED=True GRID_MAP=x=head_batch,y=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          4a23a4875e7df4eb

#include "common/attention/exact.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/staged.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/fma_products.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int HS_TILE = 64;  // columns of a row in shared memory, those beyond HS zeros
constexpr int HS_V = 64;  // of V and O
constexpr int HS_V_TILE = 64;
constexpr bool CAUSAL = true;
constexpr int THREADS = 128;  // a block of the two products
constexpr int BLOCK_M = 64;  // queries a block
constexpr int BLOCK_N = 64;  // keys a block of S
constexpr int BLOCK_K = 32;  // summands a step
constexpr int UNROLL = 2;  // steps of the inner products' loops
constexpr int SMEM_VEC = 4;  // floats a read of row operands from shared memory
constexpr int SMEM_PAD = 4;  // floats between rows of Q, K and P in shared memory
constexpr int VEC = 4;  // elements a read from device memory
constexpr int ROW_THREADS = 32;  // on one row of the softmax
constexpr int ROWS_PER_BLOCK = 4;  // of the softmax
constexpr int ROW_UNROLL = 4;  // steps of the softmax's loops
constexpr bool SKIP_MASKED = true;  // leave out tiles without a visible key

using Place = Lanes<16>;
constexpr int LANES_N = Place::LANES_N;
constexpr int LANES_M = Place::LANES_M;
constexpr int ROWS = BLOCK_M * LANES_N / THREADS;  // of S and O a thread
constexpr int KEYS = BLOCK_N / LANES_N;            // columns of S a thread
constexpr int COLS = HS_V_TILE / LANES_N;               // columns of O a thread
constexpr int COL_WIDTH = float_width(COLS);       // neighbouring ones among them

constexpr int TILE_ROW = BLOCK_K + SMEM_PAD;

/// Keys whose weights are written and read for the block of queries that `query` belongs to.
__device__ __forceinline__ int keys_of_block(const Scores<CAUSAL>& scores, int query)
{
    const int last = min(query / BLOCK_M * BLOCK_M + BLOCK_M, scores.T) - 1;
    return SKIP_MASKED ? scores.keys_seen(last) : scores.T_kv;
}

/// weights[b, h, query, key] = score in base 2.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_scores(View<element, 4> q, View<element, 4> k, float* __restrict__ weights, int NH, int NH_kv, int T,
                 int T_kv, int score_row, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const q_tile = reinterpret_cast<float*>(smem);
    float* const k_tile = q_tile + BLOCK_M * TILE_ROW;

    const int head_batch = blockIdx.x;
    const int key_begin = blockIdx.y * BLOCK_N;
    const int query_begin = blockIdx.z * BLOCK_M;
    const int batch = head_batch / NH;
    const int head = head_batch % NH;
    const int head_kv = head / (NH / NH_kv);
    const Scores<CAUSAL> scores(T, T_kv, scale);
    if (key_begin >= keys_of_block(scores, query_begin)) return;

    const Place place;
    const int row0 = place.warp * LANES_M * ROWS + place.m;  // this thread's rows are row0 + i * LANES_M
    const element* const queries = matrix_of(q, batch, head) + query_begin * q.stride[2];
    const element* const keys = matrix_of(k, batch, head_kv) + key_begin * k.stride[2];
    const bool vectors_q = HS % VEC == 0 && allows_vectors<VEC>(q);
    const bool vectors_k = HS % VEC == 0 && allows_vectors<VEC>(k);

    float s[ROWS][KEYS] = {};
#pragma unroll 1
    for (int d = 0; d < HS_TILE; d += BLOCK_K) {
        const int cols = HS == HS_TILE ? BLOCK_K : HS - d;
        __syncthreads();  // the tiles of the step before have been read
        stage<BLOCK_M, BLOCK_K, TILE_ROW, VEC, THREADS>(q_tile, queries + d * q.stride[3], q.stride[2], q.stride[3],
                                                        T - query_begin, vectors_q, cols);
        stage<BLOCK_N, BLOCK_K, TILE_ROW, VEC, THREADS>(k_tile, keys + d * k.stride[3], k.stride[2], k.stride[3],
                                                        T_kv - key_begin, vectors_k, cols);
        __syncthreads();
        multiply_nt<ROWS, KEYS, BLOCK_K, LANES_M * TILE_ROW, LANES_N * TILE_ROW, SMEM_VEC, UNROLL>(
            s, q_tile + row0 * TILE_ROW, k_tile + place.n * TILE_ROW);
    }

#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int query = query_begin + row0 + i * LANES_M;
        if (query >= T) break;
        float* const row = weights + (static_cast<long long>(head_batch) * T + query) * score_row;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            const int key = key_begin + j * LANES_N + place.n;
            if (key < T_kv) row[key] = scores.base2(s[i][j]);
        }
    }
}

/// Row by row, in place: weights = softmax(weights), 0 where the mask hides the key; lse = log of the row's sum.
extern "C" __global__ void __launch_bounds__(ROW_THREADS * ROWS_PER_BLOCK)
attention_softmax(float* __restrict__ weights, float* __restrict__ lse, int T, int T_kv, int score_row, float scale)
{
    __shared__ float scratch[ROW_THREADS / 32];

    const int blocks_per_head = (T + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
    const int head_batch = blockIdx.x / blocks_per_head;
    const int query = blockIdx.x % blocks_per_head * ROWS_PER_BLOCK + threadIdx.x / ROW_THREADS;
    if (query >= T) return;  // a whole warp, or the whole block
    const int lane = threadIdx.x % ROW_THREADS;
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const int seen = scores.keys_seen(query);
    float* const row = weights + (static_cast<long long>(head_batch) * T + query) * score_row;

    OnlineRow total;
#pragma unroll ROW_UNROLL
    for (int key = lane; key < seen; key += ROW_THREADS) {
        if (!scores.visible(query, key)) continue;
        const float score = row[key];
        total.raise(score);
        total.sum += exp2_fast(score - total.origin());
    }
    const float maximum = reduce_block<Max, ROW_THREADS>(total.maximum, scratch);
    total.raise(maximum);
    total.sum = reduce_block<Sum, ROW_THREADS>(total.sum, scratch);
    if (lane == 0) lse[static_cast<long long>(head_batch) * T + query] = scores.log_sum_exp(total);

    const float factor = 1.0f / total.sum;
    const int written = (keys_of_block(scores, query) + BLOCK_K - 1) / BLOCK_K * BLOCK_K;  // what the output reads
#pragma unroll ROW_UNROLL
    for (int key = lane; key < written; key += ROW_THREADS)
        row[key] = scores.visible(query, key) ? exp2_fast(row[key] - total.origin()) * factor : 0.0f;
}

/// out = weights times V.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_output(const float* __restrict__ weights, View<element, 4> q, View<element, 4> k, View<element, 4> v,
                 View<element, 4> out, float* __restrict__ lse, int NH, int NH_kv, int T, int T_kv, int score_row,
                 float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const p_tile = reinterpret_cast<float*>(smem);
    float* const v_tile = p_tile + BLOCK_M * TILE_ROW;

    const int head_batch = blockIdx.x;
    const int query_begin = blockIdx.y * BLOCK_M;
    const int batch = head_batch / NH;
    const int head = head_batch % NH;
    const int head_kv = head / (NH / NH_kv);
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const int key_end = keys_of_block(scores, query_begin);

    const Place place;
    const int row0 = place.warp * LANES_M * ROWS + place.m;  // this thread's rows are row0 + i * LANES_M
    const float* const rows = weights + (static_cast<long long>(head_batch) * T + query_begin) * score_row;
    const element* const values = matrix_of(v, batch, head_kv);
    const bool vectors_v = HS_V % VEC == 0 && allows_vectors<VEC>(v);

    float o[ROWS][COLS] = {};
#pragma unroll 1
    for (int key = 0; key < key_end; key += BLOCK_K) {
        __syncthreads();  // the tiles of the step before have been read
        stage<BLOCK_M, BLOCK_K, TILE_ROW, VEC, THREADS>(p_tile, rows + key, score_row, 1, T - query_begin, true);
        stage<BLOCK_K, HS_V_TILE, HS_V_TILE, VEC, THREADS>(v_tile, values + key * v.stride[2], v.stride[2],
                                                           v.stride[3], T_kv - key, vectors_v, HS_V);
        __syncthreads();
        multiply_nn<ROWS, COLS, BLOCK_K, LANES_M * TILE_ROW, HS_V_TILE, LANES_N * COL_WIDTH, COL_WIDTH, SMEM_VEC,
                    UNROLL>(o, p_tile + row0 * TILE_ROW, v_tile + place.n * COL_WIDTH);
    }

    element* const result = matrix_of(out, batch, head);
    const bool vectors_out = allows_vectors<COL_WIDTH>(out);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int query = query_begin + row0 + i * LANES_M;
        if (query >= T) break;
#pragma unroll
        for (int c = 0; c < COLS; c += COL_WIDTH) {
            float part[COL_WIDTH];
#pragma unroll
            for (int w = 0; w < COL_WIDTH; ++w) part[w] = o[i][c + w];
            store_part<HS_V_TILE, HS_V>(result + query * out.stride[2], out.stride[3],
                                        c * LANES_N + place.n * COL_WIDTH, part, vectors_out);
        }
    }

    __syncthreads();  // O is written
    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k), read_only(v), NH, NH / NH_kv, scores};
#pragma unroll 1
    for (int query = query_begin + threadIdx.x / 32; query < min(query_begin + BLOCK_M, T); query += THREADS / 32)
        exact.mend(out, lse, batch, head, query);
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// buffer weights: 50331648 fp32, workspace
// launch attention_scores grid=(48, 16, 16) block=(128, 1, 1) smem=18432 (q, k, weights, NH, NH_kv, T, T_kv, SCORE_ROW, scale)
// launch attention_softmax grid=(12288, 1, 1) block=(128, 1, 1) smem=0 (weights, lse, T, T_kv, SCORE_ROW, scale)
// launch attention_output grid=(48, 16, 1) block=(128, 1, 1) smem=17408 (weights, q, k, v, out, lse, NH, NH_kv, T, T_kv, SCORE_ROW, scale)
