// autotune: backward/flash_simt: tiles in shared memory, probabilities recomputed from the log-sum-exp, products in fp32 FMAs
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=32 BLOCK_N=64 THREADS=128 M_TILE=4 N_TILE=8 UNROLL=8 SMEM_PAD=8 VEC=8 MIN_BLOCKS=3 PREFETCH=False SKIP_MASKED=True GRID_MAP=x=head_batch,y=matrix DQ_ACCUMULATE=atomic
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          77d2abe23e934dc3

#include "common/attention/add_to_row.cuh"
#include "common/attention/exact.cuh"
#include "common/attention/row_dots.cuh"
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
constexpr int HS_V = 64;             // of V, O and their gradients
constexpr bool CAUSAL = true;
constexpr int THREADS = 128;
constexpr int MIN_BLOCKS = 3;       // a multiprocessor, asked of the register allocator
constexpr int BLOCK_M = 32;          // queries a tile
constexpr int BLOCK_N = 64;          // keys a tile
constexpr int M_TILE = 4;           // queries a thread, in S, dP and dQ
constexpr int N_TILE = 8;           // keys a thread, in dK and dV
constexpr int UNROLL = 8;           // steps of the inner products' loops
constexpr int SMEM_PAD = 8;         // floats between rows in shared memory
constexpr int VEC = 8;              // elements a read from device memory
constexpr bool SKIP_MASKED = true;  // skip tiles without a visible pair, mask only where needed
constexpr int ROW_THREADS = 256;    // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;       // of them a row

constexpr int PITCH = HS + SMEM_PAD;            // rows of Q and K in shared memory
constexpr int V_PITCH = HS_V + SMEM_PAD;        // rows of V and dO
constexpr int SCORE_PITCH = BLOCK_N + SMEM_PAD;  // rows of P and dS in shared memory

using QueryGrid = ThreadGrid<THREADS, BLOCK_M / M_TILE>;
using KeyGrid = ThreadGrid<THREADS, BLOCK_N / N_TILE>;
constexpr int S_COLS = BLOCK_N / QueryGrid::COLS;  // columns of S and dP a thread
constexpr int DQ_COLS = HS / QueryGrid::COLS;      // columns of dQ a thread
constexpr int DK_COLS = HS / KeyGrid::COLS;        // columns of dK a thread
constexpr int DV_COLS = HS_V / KeyGrid::COLS;      // columns of dV a thread
constexpr int DQ_WIDTH = float_width(DQ_COLS);     // neighbouring ones among them

/// acc += rows of `a` times rows of `b`, over the head: S = QKᵀ and dP = dO Vᵀ.
template <int SIZE>
__device__ __forceinline__ void multiply_over_head(float (&acc)[M_TILE][S_COLS], const float* a, const float* b)
{
    constexpr int ROW = SIZE + SMEM_PAD;
    const QueryGrid at;
    multiply_nt<M_TILE, S_COLS, SIZE, QueryGrid::ROWS * ROW, QueryGrid::COLS * ROW, 4, UNROLL>(
        acc, a + at.row * ROW, b + at.col * ROW);
}

/// acc += pairs transposed times rows, over the tile's queries: dV += PᵀdO and dK += dSᵀQ.
template <int COLS>
__device__ __forceinline__ void multiply_over_queries(float (&acc)[N_TILE][COLS], const float* pairs, const float* rows)
{
    constexpr int ROW = COLS * KeyGrid::COLS + SMEM_PAD;
    constexpr int WIDTH = float_width(COLS);  // neighbouring columns among a thread's
    const KeyGrid at;
    multiply_tn<N_TILE, COLS, BLOCK_M, SCORE_PITCH, 4 * KeyGrid::ROWS, ROW, WIDTH * KeyGrid::COLS, WIDTH, UNROLL>(
        acc, pairs + 4 * at.row, rows + WIDTH * at.col);
}

/// acc += pairs times rows, over the tile's keys: dQ += dS K.
__device__ __forceinline__ void multiply_over_keys(float (&acc)[M_TILE][DQ_COLS], const float* pairs, const float* rows)
{
    const QueryGrid at;
    multiply_nn<M_TILE, DQ_COLS, BLOCK_N, QueryGrid::ROWS * SCORE_PITCH, PITCH, DQ_WIDTH * QueryGrid::COLS, DQ_WIDTH, 4,
                UNROLL>(acc, pairs + at.row * SCORE_PITCH, rows + DQ_WIDTH * at.col);
}

/// Copies ROWS rows of matrix (b, h) from `row` on to shared memory; rows from `rows` on become 0.
template <int ROWS, int SIZE>
__device__ __forceinline__ void stage_rows(float* tile, const View<const element, 4>& tensor, int b, int h, int row,
                                           int rows, bool vectors)
{
    stage<ROWS, SIZE, SIZE + SMEM_PAD, VEC, THREADS>(tile, matrix_of(tensor, b, h) + row * tensor.stride[2],
                                                     tensor.stride[2], tensor.stride[3], rows - row, vectors);
}

/// What the forward pass left of a row of scores, one row a thread.
struct RowSums {
    float lse;
    float delta;

    /// Starts reading BLOCK_M rows from `first` on; of rows from `rows` on nothing is read.
    __device__ __forceinline__ void fetch(const float* all_lse, const float* all_delta, long long first, int rows)
    {
        const bool exists = static_cast<int>(threadIdx.x) < min(rows, BLOCK_M);
        lse = exists ? all_lse[first + threadIdx.x] : minus_infinity();
        delta = exists ? all_delta[first + threadIdx.x] : 0.0f;
    }

    /// Writes them to shared memory. Rows without a key and rows past the end get a log-sum-exp of +inf, which makes all
    /// their probabilities 0.
    __device__ __forceinline__ void place(float* lse_tile, float* delta_tile) const
    {
        static_assert(BLOCK_M <= THREADS, "one row a thread");
        if (threadIdx.x >= BLOCK_M) return;
        lse_tile[threadIdx.x] = trusted_log_sum(lse);
        delta_tile[threadIdx.x] = delta;
    }
};

/// S -> P, for the tile of pairs from (query, key) on.
__device__ __forceinline__ void recompute_probabilities(float (&s)[M_TILE][S_COLS], const Scores<CAUSAL>& scores,
                                                        const float* lse_tile, int query, int key)
{
    const QueryGrid at;
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const float log_sum = lse_tile[at.row + i * QueryGrid::ROWS];
#pragma unroll
        for (int j = 0; j < S_COLS; ++j) s[i][j] = scores.probability(s[i][j], log_sum);
    }
    if (SKIP_MASKED && scores.all_visible(query, min(query + BLOCK_M, scores.T), key, key + BLOCK_N)) return;
#pragma unroll
    for (int i = 0; i < M_TILE; ++i)
#pragma unroll
        for (int j = 0; j < S_COLS; ++j)
            if (!scores.visible(query + at.row + i * QueryGrid::ROWS, key + at.col + j * QueryGrid::COLS))
                s[i][j] = 0.0f;
}

/// dP -> dS.
__device__ __forceinline__ void score_gradients(float (&dp)[M_TILE][S_COLS], const float (&p)[M_TILE][S_COLS],
                                                const Scores<CAUSAL>& scores, const float* delta_tile)
{
    const QueryGrid at;
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const float delta = delta_tile[at.row + i * QueryGrid::ROWS];
#pragma unroll
        for (int j = 0; j < S_COLS; ++j) dp[i][j] = scores.score_gradient(p[i][j] * (dp[i][j] - delta));
    }
}

/// Where the thread's pair (i, j) lies in a tile of pairs in shared memory.
__device__ __forceinline__ int pair_at(const QueryGrid& at, int i, int j)
{
    return (at.row + i * QueryGrid::ROWS) * SCORE_PITCH + at.col + j * QueryGrid::COLS;
}

__device__ __forceinline__ void write_pairs(float* tile, const float (&pairs)[M_TILE][S_COLS])
{
    const QueryGrid at;
#pragma unroll
    for (int i = 0; i < M_TILE; ++i)
#pragma unroll
        for (int j = 0; j < S_COLS; ++j) tile[pair_at(at, i, j)] = pairs[i][j];
}

/// Rounds and writes the thread's part of dK or dV.
template <int COLS>
__device__ __forceinline__ void write_key_rows(const View<element, 4>& tensor, int b, int h, int key, int T_kv,
                                               const float (&x)[N_TILE][COLS])
{
    constexpr int WIDTH = float_width(COLS);
    const KeyGrid at;
    const bool vectors = allows_vectors<WIDTH>(tensor);
#pragma unroll
    for (int i = 0; i < N_TILE; ++i) {
        const int row = key + 4 * (at.row + i / 4 * KeyGrid::ROWS) + i % 4;
        if (row >= T_kv) continue;
#pragma unroll
        for (int j = 0; j < COLS; j += WIDTH) {
            float part[WIDTH];
#pragma unroll
            for (int w = 0; w < WIDTH; ++w) part[w] = x[i][j + w];
            store_row(matrix_of(tensor, b, h) + row * tensor.stride[2], tensor.stride[3],
                      WIDTH * at.col + j * KeyGrid::COLS, part, vectors);
        }
    }
}

/// Adds the thread's part of dQ to what other blocks add.
__device__ __forceinline__ void add_query_rows(const View<float, 4>& dq, int b, int h, int query, int T,
                                               const float (&x)[M_TILE][DQ_COLS])
{
    const QueryGrid at;
    const bool vectors = allows_vectors<DQ_WIDTH>(dq);
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const int row = query + at.row + i * QueryGrid::ROWS;
        if (row >= T) continue;
#pragma unroll
        for (int j = 0; j < DQ_COLS; j += DQ_WIDTH) {
            float part[DQ_WIDTH];
#pragma unroll
            for (int w = 0; w < DQ_WIDTH; ++w) part[w] = x[i][j + w];
            add_to_row(matrix_of(dq, b, h) + row * dq.stride[2], dq.stride[3],
                      DQ_WIDTH * at.col + j * QueryGrid::COLS, part, vectors);
        }
    }
}

/// A contiguous (B, NH, T, HS) workspace as a tensor.
__device__ __forceinline__ View<float, 4> contiguous(float* data, int NH, int T)
{
    const long long matrix = static_cast<long long>(T) * HS;
    return {data, {NH * matrix, matrix, HS, 1}};
}

/// delta = rowsum(dO * O), ROW_LANES threads a row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_delta(View<const element, 4> out, View<const element, 4> dout, float* __restrict__ delta,
          int NH, int T)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>(NH, T);
    const float sum = dot_of_rows<HS_V, VEC, ROW_LANES>(out, dout, place, place.t < T);
    if (place.t >= T) return;
    if (threadIdx.x % ROW_LANES == 0) delta[place.number(NH, T)] = sum;
}

/// dK and dV of BLOCK_N keys, summed over all queries that see them and over the query heads that share them;
/// adds their share of dQ.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
key_gradients(View<const element, 4> q, View<const element, 4> k, View<const element, 4> v,
              View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
              const float* __restrict__ delta, View<element, 4> dk, View<element, 4> dv, float* dq_accumulator, int NH, int NH_kv, int T, int T_kv,
              float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const k_tile = reinterpret_cast<float*>(smem);
    float* const v_tile = k_tile + BLOCK_N * PITCH;
    float* const q_tile = v_tile + BLOCK_N * V_PITCH;
    float* const dout_tile = q_tile + BLOCK_M * PITCH;
    float* const p_tile = dout_tile + BLOCK_M * V_PITCH;
    float* const ds_tile = p_tile + BLOCK_M * SCORE_PITCH;
    float* const lse_tile = ds_tile + BLOCK_M * SCORE_PITCH;
    float* const delta_tile = lse_tile + BLOCK_M;

    const int b = blockIdx.x / NH_kv;
    const int h_kv = blockIdx.x % NH_kv;
    const int key = blockIdx.y * BLOCK_N;  // the first keys have the most queries: they start first
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const View<float, 4> dq = contiguous(dq_accumulator, NH, T);

    stage_rows<BLOCK_N, HS>(k_tile, k, b, h_kv, key, T_kv, allows_vectors<VEC>(k));
    stage_rows<BLOCK_N, HS_V>(v_tile, v, b, h_kv, key, T_kv, allows_vectors<VEC>(v));

    float dk_rows[N_TILE][DK_COLS] = {};
    float dv_rows[N_TILE][DV_COLS] = {};

    // A step is a tile of queries of one of the query heads that share the key head.
    const int query_begin = SKIP_MASKED ? scores.first_query(key) / BLOCK_M * BLOCK_M : 0;
    const int tiles = query_begin < T ? (T - query_begin + BLOCK_M - 1) / BLOCK_M : 0;
    const int steps = NH / NH_kv * tiles;
    int h = h_kv * (NH / NH_kv);
    int query = query_begin;

    RowSums sums;
    if (steps > 0) sums.fetch(lse, delta, (static_cast<long long>(b) * NH + h) * T + query, T - query);
    const bool vectors_q = allows_vectors<VEC>(q);
    const bool vectors_dout = allows_vectors<VEC>(dout);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        __syncthreads();  // the tiles of the step before have been read
        stage_rows<BLOCK_M, HS>(q_tile, q, b, h, query, T, vectors_q);
        stage_rows<BLOCK_M, HS_V>(dout_tile, dout, b, h, query, T, vectors_dout);
        sums.place(lse_tile, delta_tile);
        __syncthreads();

        float p[M_TILE][S_COLS] = {};
        multiply_over_head<HS>(p, q_tile, k_tile);
        recompute_probabilities(p, scores, lse_tile, query, key);
        write_pairs(p_tile, p);

        float ds[M_TILE][S_COLS] = {};
        multiply_over_head<HS_V>(ds, dout_tile, v_tile);
        score_gradients(ds, p, scores, delta_tile);
        write_pairs(ds_tile, ds);
        __syncthreads();

        float dq_rows[M_TILE][DQ_COLS] = {};
        multiply_over_keys(dq_rows, ds_tile, k_tile);
        add_query_rows(dq, b, h, query, T, dq_rows);

        query += BLOCK_M;
        if (query >= T) {
            query = query_begin;
            ++h;
        }
        if (step + 1 < steps) {  // memory answers while the last products are computed
            sums.fetch(lse, delta, (static_cast<long long>(b) * NH + h) * T + query, T - query);
        }
        multiply_over_queries(dv_rows, p_tile, dout_tile);
        multiply_over_queries(dk_rows, ds_tile, q_tile);
    }

    write_key_rows(dk, b, h_kv, key, T_kv, dk_rows);
    write_key_rows(dv, b, h_kv, key, T_kv, dv_rows);

    __syncthreads();  // dK and dV are written
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {q, k, v, out, dout, lse, NH, NH / NH_kv, scores};
#pragma unroll 1
    for (int own = key + threadIdx.x / 32; own < min(key + BLOCK_N, T_kv); own += THREADS / 32) {
        exact.mend_key<true>(dk, b, h_kv, own);
        exact.mend_key<false>(dv, b, h_kv, own);
    }
}

/// Rounds the finished dQ, ROW_LANES threads a row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
round_query_gradient(const float* __restrict__ dq_accumulator, View<const element, 4> q, View<const element, 4> k,
                     View<const element, 4> v, View<const element, 4> out, View<const element, 4> dout,
                     const float* __restrict__ lse, View<element, 4> dq, int NH, int NH_kv, int T, int T_kv, float scale)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>(NH, T);
    const bool vectors = allows_vectors<VEC>(dq);

    for (int col = threadIdx.x % ROW_LANES * VEC; col < HS && place.t < T; col += ROW_LANES * VEC) {
        float x[VEC];
        load<VEC>(dq_accumulator + place.number(NH, T) * HS + col, x);
        store_row(row_of(dq, place), dq.stride[3], col, x, vectors);
    }

    __syncwarp();  // the warp's rows are written
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {q, k, v, out, dout, lse, NH, NH / NH_kv, scores};
    const int first = __shfl_sync(ALL_LANES, place.t, 0);
#pragma unroll 1
    for (int query = first; query < min(first + 32 / ROW_LANES, T); ++query)
        exact.mend_query(dq, place.b, place.h, query);
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, input
// buffer lse: 49152 fp32, input
// buffer dout: 3145728 fp16, input
// buffer dq: 3145728 fp16, output
// buffer dk: 3145728 fp16, output
// buffer dv: 3145728 fp16, output
// buffer delta: 49152 fp32, workspace
// buffer dq_accumulator: 3145728 fp32, workspace
// zero dq_accumulator
// launch row_delta grid=(1536, 1, 1) block=(256, 1, 1) smem=0 (out, dout, delta, NH, T)
// launch key_gradients grid=(48, 16, 1) block=(128, 1, 1) smem=73984 (q, k, v, out, dout, lse, delta, dk, dv, dq_accumulator, NH, NH_kv, T, T_kv, scale)
// launch round_query_gradient grid=(1536, 1, 1) block=(256, 1, 1) smem=0 (dq_accumulator, q, k, v, out, dout, lse, dq, NH, NH_kv, T, T_kv, scale)
