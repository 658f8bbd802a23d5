// autotune: forward/flash_simt: tiled attention with an online softmax, fp32 FMAs, operands in shared memory
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=64 BLOCK_N=64 THREADS=128 LANES_N=8 MIN_WARPS=12 UNROLL=2 SMEM_PAD=4 VEC=4 P_COLS=64 KV_BUFFERS=1 SKIP_MASKED=True ROW_ORDER=last_first GRID_MAP=x=head_batch,y=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          740d490ff3360162

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
constexpr int HS_V = 64;  // of V and O
constexpr bool CAUSAL = true;
constexpr int THREADS = 128;
constexpr int MIN_BLOCKS = 3;  // a multiprocessor holds at least: this bounds the registers
constexpr int BLOCK_M = 64;  // queries a tile
constexpr int BLOCK_N = 64;  // keys a step
constexpr int UNROLL = 2;  // steps of the inner products' loops
constexpr int SMEM_VEC = 4;  // floats a read of Q, K and P from shared memory
constexpr int SMEM_PAD = 4;  // floats between rows of Q and K in shared memory
constexpr int VEC = 4;  // elements a read from device memory
constexpr int P_COLS = 64;  // columns of P that a warp exchanges at a time
constexpr bool SKIP_MASKED = true;  // skip tiles without a visible key, mask only where needed

using Place = Lanes<8>;
constexpr int LANES_N = Place::LANES_N;
constexpr int LANES_M = Place::LANES_M;
constexpr int ROWS = BLOCK_M * LANES_N / THREADS;  // of S and O a thread
constexpr int KEYS = BLOCK_N / LANES_N;            // columns of S a thread
constexpr int COLS = HS_V / LANES_N;               // columns of O a thread
constexpr int COL_WIDTH = float_width(COLS);       // neighbouring ones among them

constexpr int Q_ROW = HS + SMEM_PAD;
constexpr int K_ROW = HS + SMEM_PAD;
constexpr int V_ROW = HS_V;
constexpr int P_ROW = P_COLS + LANES_N;

using Score = float[ROWS][KEYS];
using Output = float[ROWS][COLS];

struct Arguments {
    View<element, 4> q, k, v, out;
    float* lse;
    int NH, NH_kv, T, T_kv;
    float scale;
};

/// q·k to scores; those that the mask hides become -inf. `query` and `key` are the thread's first.
__device__ __forceinline__ void score(Score& s, const Scores<CAUSAL>& scores, bool masked, int query, int key)
{
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < KEYS; ++j) s[i][j] = scores.base2(s[i][j]);
    if (!masked) return;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < KEYS; ++j)
            if (!scores.visible(query + i * LANES_M, key + j * LANES_N)) s[i][j] = minus_infinity();
}

/// Scores to weights relative to each row's maximum so far; what was summed before is rescaled to it.
__device__ __forceinline__ void soften(Score& s, Output& o, OnlineRow (&rows)[ROWS])
{
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        float highest = s[i][0];
#pragma unroll
        for (int j = 1; j < KEYS; ++j) highest = fmaxf(highest, s[i][j]);
        const float factor = rows[i].raise(reduce_lanes<Max, Place::FIRST_BIT, Place::END_BIT>(highest));
#pragma unroll
        for (int c = 0; c < COLS; ++c) o[i][c] *= factor;
#pragma unroll
        for (int j = 0; j < KEYS; ++j) {
            s[i][j] = exp2_fast(s[i][j] - rows[i].origin());
            rows[i].sum += s[i][j];  // of this lane's columns; lanes are added up at the end
        }
    }
}

/// o += P times V. Warps own whole rows, so that a warp exchanges its weights without the rest of the block.
__device__ __forceinline__ void add_values(Output& o, const Score& p, float* p_rows, int lane_n, const float* v_columns)
{
#pragma unroll
    for (int first = 0; first < KEYS; first += P_COLS / LANES_N) {
        __syncwarp();  // the columns before have been read
#pragma unroll
        for (int j = 0; j < P_COLS / LANES_N; ++j)
#pragma unroll
            for (int i = 0; i < ROWS; ++i) p_rows[i * LANES_M * P_ROW + j * LANES_N + lane_n] = p[i][first + j];
        __syncwarp();
        multiply_nn<ROWS, COLS, P_COLS, LANES_M * P_ROW, V_ROW, LANES_N * COL_WIDTH, COL_WIDTH, SMEM_VEC, UNROLL>(
            o, p_rows, v_columns + first * LANES_N * V_ROW);
    }
}

/// Normalised rows and their LSE; 0 and -inf for a query without keys. `query` is the thread's first.
__device__ __forceinline__ void write(const Arguments& a, const Scores<CAUSAL>& scores, int batch, int head, int query,
                                      int lane_n, const Output& o, OnlineRow (&rows)[ROWS])
{
    element* const matrix = matrix_of(a.out, batch, head);
    float* const lse = a.lse + (static_cast<long long>(batch) * a.NH + head) * a.T;
    const bool vectors = allows_vectors<COL_WIDTH>(a.out);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) rows[i].sum = reduce_lanes<Sum, Place::FIRST_BIT, Place::END_BIT>(rows[i].sum);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int row = query + i * LANES_M;
        if (row >= a.T) break;
        if (lane_n == 0) lse[row] = scores.log_sum_exp(rows[i]);
        const bool sees_keys = scores.keys_seen(row) > 0;
        const float factor = 1.0f / rows[i].sum;
#pragma unroll
        for (int c = 0; c < COLS; c += COL_WIDTH) {
            float part[COL_WIDTH];
#pragma unroll
            for (int w = 0; w < COL_WIDTH; ++w) part[w] = sees_keys ? o[i][c + w] * factor : 0.0f;
            store_row(matrix + row * a.out.stride[2], a.out.stride[3], c * LANES_N + lane_n * COL_WIDTH, part, vectors);
        }
    }
}

/// The BLOCK_M queries of a tile, all keys.
__device__ __forceinline__ void attend(const Arguments& a, float* shared, int batch, int head, int tile)
{
    float* const q_tile = shared;
    float* const k_tile = q_tile + BLOCK_M * Q_ROW;
    float* const v_tile = k_tile;
    float* const p_tile = k_tile + BLOCK_N * (K_ROW > V_ROW ? K_ROW : V_ROW);

    const Place place;
    const int row = place.warp * LANES_M * ROWS + place.m;  // the thread's rows of a tile are row + i * LANES_M
    const int query_begin = tile * BLOCK_M;
    const int query_end = min(query_begin + BLOCK_M, a.T);
    const int head_kv = head / (a.NH / a.NH_kv);
    const element* const queries = matrix_of(a.q, batch, head) + query_begin * a.q.stride[2];
    const element* const keys = matrix_of(a.k, batch, head_kv);
    const element* const values = matrix_of(a.v, batch, head_kv);
    const bool vectors_k = allows_vectors<VEC>(a.k);
    const bool vectors_v = allows_vectors<VEC>(a.v);
    const Scores<CAUSAL> scores(a.T, a.T_kv, a.scale);

    stage<BLOCK_M, HS, Q_ROW, VEC, THREADS>(q_tile, queries, a.q.stride[2], a.q.stride[3], a.T - query_begin,
                                            allows_vectors<VEC>(a.q));
    OnlineRow rows[ROWS];
    Output o = {};

    const int key_end = SKIP_MASKED ? scores.keys_seen(query_end - 1) : a.T_kv;
#pragma unroll 1
    for (int key = 0; key < key_end; key += BLOCK_N) {
        __syncthreads();  // the tiles of the step before have been read
        stage<BLOCK_N, HS, K_ROW, VEC, THREADS>(k_tile, keys + key * a.k.stride[2], a.k.stride[2], a.k.stride[3],
                                                a.T_kv - key, vectors_k);
        __syncthreads();
        Score s = {};
        multiply_nt<ROWS, KEYS, HS, LANES_M * Q_ROW, LANES_N * K_ROW, SMEM_VEC, UNROLL>(s, q_tile + row * Q_ROW,
                                                                                        k_tile + place.n * K_ROW);
        __syncthreads();  // V takes the place of K
        stage<BLOCK_N, HS_V, V_ROW, VEC, THREADS>(v_tile, values + key * a.v.stride[2], a.v.stride[2], a.v.stride[3],
                                                  a.T_kv - key, vectors_v);
        const bool masked = !SKIP_MASKED || !scores.all_visible(query_begin, query_end, key, key + BLOCK_N);
        score(s, scores, masked, query_begin + row, key + place.n);
        soften(s, o, rows);
        __syncthreads();
        add_values(o, s, p_tile + row * P_ROW, place.n, v_tile + place.n * COL_WIDTH);
    }
    write(a, scores, batch, head, query_begin + row, place.n, o, rows);

    __syncthreads();  // O is written
    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(a.q), read_only(a.k),    read_only(a.v),
                                                           a.NH,           a.NH / a.NH_kv, scores};
#pragma unroll 1
    for (int query = query_begin + threadIdx.x / 32; query < query_end; query += THREADS / 32)
        exact.mend(a.out, a.lse, batch, head, query);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ lse, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const shared = reinterpret_cast<float*>(smem);
    const Arguments arguments{q, k, v, out, lse, NH, NH_kv, T, T_kv, scale};

    const int batch = blockIdx.x / NH;
    const int head = blockIdx.x % NH;
    const int place = blockIdx.y;
    attend(arguments, shared, batch, head, gridDim.y - 1 - place);
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// launch attention_forward grid=(48, 16, 1) block=(128, 1, 1) smem=53248 (q, k, v, out, lse, NH, NH_kv, T, T_kv, scale)
