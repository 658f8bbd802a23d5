// autotune: backward/unfused: the plain pipeline: P, then dP and dS in memory, then one batched product a gradient
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=64 BLOCK_N=64 BLOCK_K=32 THREADS=128 M_TILE=8 UNROLL=4 SMEM_PAD=4 VEC=4 SOFTMAX=from_lse FUSE_DS=True ROW_WARPS=4 SKIP_MASKED=True GRID_MAP=x=head_batch,y=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          5765a34dd134c006

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
constexpr int HS_TILE = 64;       // columns of a row in shared memory, those beyond HS zeros
constexpr int HS_V = 64;          // of V, O and their gradients
constexpr int HS_V_TILE = 64;
constexpr bool CAUSAL = true;
constexpr int THREADS = 128;      // a block of the products
constexpr int BLOCK_M = 64;       // rows of a product's tile
constexpr int BLOCK_N = 64;       // keys of a tile of S
constexpr int BLOCK_K = 32;       // summands a step
constexpr int M_TILE = 8;         // rows a thread
constexpr int UNROLL = 4;         // steps of the inner products' loops
constexpr int SMEM_PAD = 4;       // floats between rows in shared memory
constexpr int VEC = 4;            // elements a read from device memory
constexpr int ROW_WARPS = 4;      // a block of the kernels that work row by row, a row each
constexpr bool SKIP_MASKED = true;  // neither compute nor sum up tiles without a visible pair

constexpr int PITCH_K = BLOCK_K + SMEM_PAD;  // rows in shared memory, by what they hold
constexpr int PITCH_M = BLOCK_M + SMEM_PAD;

using Grid = ThreadGrid<THREADS, BLOCK_M / M_TILE>;
constexpr int PAIR_COLS = BLOCK_N / Grid::COLS;  // columns of S and dP a thread

/// Rows of Q, K and their gradients, or of V, O and theirs.
template <int SIZE_, int TILE_>
struct Head {
    static constexpr int SIZE = SIZE_;               // elements a row
    static constexpr int TILE = TILE_;               // columns in shared memory
    static constexpr int PITCH = TILE + SMEM_PAD;    // floats a row there
    static constexpr int COLS = TILE / Grid::COLS;   // of a gradient a thread
    static constexpr int WIDTH = float_width(COLS);  // neighbouring ones among them
};

using QueryHead = Head<HS, HS_TILE>;
using ValueHead = Head<HS_V, HS_V_TILE>;

/// A (B, NH, T, T_kv) matrix of pairs in memory; rows are padded to whole vectors, with zeros in written tiles.
struct Pairs {
    float* data;
    int T;
    int row_stride;

    __device__ __forceinline__ Pairs(float* all, int matrix, int T_, int T_kv)
        : data(all), T(T_), row_stride((T_kv + 3) / 4 * 4)
    {
        data += static_cast<long long>(matrix) * T * row_stride;
    }

    __device__ __forceinline__ float* row(int query) const { return data + static_cast<long long>(query) * row_stride; }
};

/// Which tile of which matrix a block computes.
struct Place {
    int matrix;  // b * heads + h
    int b;
    int h;
    int tile;

    __device__ __forceinline__ explicit Place(int heads)
        : matrix(blockIdx.x), b(matrix / heads), h(matrix % heads), tile(blockIdx.y)
    {
    }
};

/// The same for tiles of pairs: rows from `query` on, columns from `key` on.
struct PairPlace {
    int matrix;
    int b;
    int h;
    int query;
    int key;

    __device__ __forceinline__ explicit PairPlace(int NH)
        : matrix(blockIdx.x), b(matrix / NH), h(matrix % NH), query(blockIdx.z * BLOCK_M), key(blockIdx.y * BLOCK_N)
    {
    }

    /// Whether no query of the tile sees a key of it.
    __device__ __forceinline__ bool empty(const Scores<CAUSAL>& scores) const
    {
        return SKIP_MASKED && key >= scores.keys_seen(min(query + BLOCK_M, scores.T) - 1);
    }
};

/// acc = BLOCK_M rows of `a` from `query` on times BLOCK_N rows of `b` from `key` on, transposed.
template <class H>
__device__ __forceinline__ void multiply_rows(float (&acc)[M_TILE][PAIR_COLS], const View<const element, 4>& a,
                                              const View<const element, 4>& b, const PairPlace& place, int h_kv,
                                              const Scores<CAUSAL>& scores, float* a_tile)
{
    float* const b_tile = a_tile + BLOCK_M * PITCH_K;
    const element* const a_rows = matrix_of(a, place.b, place.h) + place.query * a.stride[2];
    const element* const b_rows = matrix_of(b, place.b, h_kv) + place.key * b.stride[2];
    const bool a_vectors = H::SIZE % VEC == 0 && allows_vectors<VEC>(a);
    const bool b_vectors = H::SIZE % VEC == 0 && allows_vectors<VEC>(b);
    const Grid at;

#pragma unroll 1
    for (int k = 0; k < H::TILE; k += BLOCK_K) {
        const int cols = H::SIZE == H::TILE ? BLOCK_K : H::SIZE - k;
        __syncthreads();  // the tiles of the step before have been read
        stage<BLOCK_M, BLOCK_K, PITCH_K, VEC, THREADS>(a_tile, a_rows + k * a.stride[3], a.stride[2], a.stride[3],
                                                       scores.T - place.query, a_vectors, cols);
        stage<BLOCK_N, BLOCK_K, PITCH_K, VEC, THREADS>(b_tile, b_rows + k * b.stride[3], b.stride[2], b.stride[3],
                                                       scores.T_kv - place.key, b_vectors, cols);
        __syncthreads();
        multiply_nt<M_TILE, PAIR_COLS, BLOCK_K, Grid::ROWS * PITCH_K, Grid::COLS * PITCH_K, 4, UNROLL>(
            acc, a_tile + at.row * PITCH_K, b_tile + at.col * PITCH_K);
    }
}

/// Copies ROWS x COLS pairs from (query, key) on to shared memory. Pairs that are not visible become 0, and are read only
/// beside visible ones: tiles without a visible pair were never written.
template <int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void stage_pairs(float* tile, const Pairs& pairs, int query, int key,
                                            const Scores<CAUSAL>& scores)
{
    constexpr int CHUNKS = COLS / 4;
    const bool whole = scores.all_visible(query, query + ROWS, key, key + COLS);
#pragma unroll
    for (int first = 0; first < ROWS * CHUNKS; first += THREADS) {
        const int chunk = first + threadIdx.x;
        if (ROWS * CHUNKS % THREADS != 0 && chunk >= ROWS * CHUNKS) break;
        const int row = chunk / CHUNKS;
        const int col = chunk % CHUNKS * 4;
        float x[4] = {};
        const bool seen = scores.visible(query + row, key + col) || scores.visible(query + row, key + col + 3);
        if (whole || seen) load<4>(pairs.row(query + row) + key + col, x);
        if (!whole) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (!scores.visible(query + row, key + col + e)) x[e] = 0.0f;
        }
        store<4>(tile + row * PITCH + col, x);
    }
}

/// Writes the thread's part of ROWS rows of a gradient, rounded. Row i of the thread is `row` + offset_of_row(i).
template <class H, class OffsetOfRow>
__device__ __forceinline__ void write_rows(const View<element, 4>& tensor, const Place& place, int row, int rows,
                                           const float (&x)[M_TILE][H::COLS], OffsetOfRow offset_of_row)
{
    const Grid at;
    const bool vectors = allows_vectors<H::WIDTH>(tensor);
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const int here = row + offset_of_row(i);
        if (here >= rows) continue;
#pragma unroll
        for (int j = 0; j < H::COLS; j += H::WIDTH) {
            float part[H::WIDTH];
#pragma unroll
            for (int w = 0; w < H::WIDTH; ++w) part[w] = x[i][j + w];
            store_part<H::TILE, H::SIZE>(matrix_of(tensor, place.b, place.h) + here * tensor.stride[2],
                                         tensor.stride[3], H::WIDTH * at.col + j * Grid::COLS, part, vectors);
        }
    }
}

/// gradient = pairs transposed times rows, summed over the query heads that share a key head: dV = PᵀdO, dK = dSᵀQ.
template <class H>
__device__ __forceinline__ void multiply_over_queries(float* all_pairs, const View<const element, 4>& rows,
                                                      const View<element, 4>& gradient, int NH, int NH_kv,
                                                      const Scores<CAUSAL>& scores, float* pair_tile)
{
    float* const row_tile = pair_tile + BLOCK_K * PITCH_M;
    const Place place(NH_kv);
    const int key = place.tile * BLOCK_M;
    const int group = NH / NH_kv;
    const bool vectors = H::SIZE % VEC == 0 && allows_vectors<VEC>(rows);
    const Grid at;

    float acc[M_TILE][H::COLS] = {};
    const int query_begin = SKIP_MASKED ? scores.first_query(key) / BLOCK_K * BLOCK_K : 0;
#pragma unroll 1
    for (int h = place.h * group; h < (place.h + 1) * group; ++h) {
        const Pairs pairs(all_pairs, place.b * NH + h, scores.T, scores.T_kv);
#pragma unroll 1
        for (int query = query_begin; query < scores.T; query += BLOCK_K) {
            __syncthreads();  // the tiles of the step before have been read
            stage_pairs<BLOCK_K, BLOCK_M, PITCH_M>(pair_tile, pairs, query, key, scores);
            stage<BLOCK_K, H::TILE, H::PITCH, VEC, THREADS>(row_tile, matrix_of(rows, place.b, h) + query * rows.stride[2],
                                                            rows.stride[2], rows.stride[3], scores.T - query, vectors,
                                                            H::SIZE);
            __syncthreads();
            multiply_tn<M_TILE, H::COLS, BLOCK_K, PITCH_M, 4 * Grid::ROWS, H::PITCH, H::WIDTH * Grid::COLS, H::WIDTH,
                        UNROLL>(acc, pair_tile + 4 * at.row, row_tile + H::WIDTH * at.col);
        }
    }
    write_rows<H>(gradient, place, key + 4 * at.row, scores.T_kv, acc,
                  [](int i) { return i / 4 * 4 * Grid::ROWS + i % 4; });
}

/// delta = rowsum(dO * O), a warp a row.
extern "C" __global__ void __launch_bounds__(32 * ROW_WARPS)
row_delta(View<const element, 4> out, View<const element, 4> dout, float* __restrict__ delta, int NH, int T)
{
    const RowPlace place = row_of_thread<32 * ROW_WARPS, 32>(NH, T);
    const float sum = dot_of_rows<HS_V, HS_V % VEC == 0 ? VEC : 1, 32>(out, dout, place, place.t < T);
    if (place.t < T && threadIdx.x % 32 == 0) delta[place.number(NH, T)] = sum;
}

/// P = exp(S - lse), a tile a block.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_weights(View<const element, 4> q, View<const element, 4> k, const float* __restrict__ lse, float* weights,
                  int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const PairPlace place(NH);
    if (place.empty(scores)) return;

    float s[M_TILE][PAIR_COLS] = {};
    multiply_rows<QueryHead>(s, q, k, place, place.h / (NH / NH_kv), scores, reinterpret_cast<float*>(smem));

    const Pairs p(weights, place.matrix, T, T_kv);
    const Grid at;
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const int query = place.query + at.row + i * Grid::ROWS;
        if (query >= T) continue;
        const float log_sum = trusted_log_sum(lse[static_cast<long long>(place.matrix) * T + query]);
#pragma unroll
        for (int j = 0; j < PAIR_COLS; ++j) {
            const int key = place.key + at.col + j * Grid::COLS;
            if (key < p.row_stride) p.row(query)[key] = scores.visible(query, key) ? scores.probability(s[i][j], log_sum) : 0.0f;
        }
    }
}

/// dS = P (dP - delta), a tile a block.
extern "C" __global__ void __launch_bounds__(THREADS)
score_gradients(View<const element, 4> dout, View<const element, 4> v, float* weights, const float* __restrict__ delta,
                float* d_scores, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const PairPlace place(NH);
    if (place.empty(scores)) return;

    float dp[M_TILE][PAIR_COLS] = {};
    multiply_rows<ValueHead>(dp, dout, v, place, place.h / (NH / NH_kv), scores, reinterpret_cast<float*>(smem));

    const Pairs p(weights, place.matrix, T, T_kv);
    const Pairs ds(d_scores, place.matrix, T, T_kv);
    const Grid at;
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const int query = place.query + at.row + i * Grid::ROWS;
        if (query >= T) continue;
        const float row_delta = delta[static_cast<long long>(place.matrix) * T + query];
#pragma unroll
        for (int j = 0; j < PAIR_COLS; ++j) {
            const int key = place.key + at.col + j * Grid::COLS;
            if (key < ds.row_stride) ds.row(query)[key] = scores.score_gradient(p.row(query)[key] * (dp[i][j] - row_delta));
        }
    }
}

/// dV of BLOCK_M keys.
extern "C" __global__ void __launch_bounds__(THREADS)
value_gradient(float* weights, View<const element, 4> q, View<const element, 4> k, View<const element, 4> v,
               View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
               View<element, 4> dv, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const Scores<CAUSAL> scores(T, T_kv, scale);
    multiply_over_queries<ValueHead>(weights, dout, dv, NH, NH_kv, scores, reinterpret_cast<float*>(smem));

    __syncthreads();  // dV is written
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {q, k, v, out, dout, lse, NH, NH / NH_kv, scores};
    const Place place(NH_kv);
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < min(BLOCK_M, T_kv - place.tile * BLOCK_M); row += THREADS / 32)
        exact.mend_key<false>(dv, place.b, place.h, place.tile * BLOCK_M + row);
}

/// dK of BLOCK_M keys.
extern "C" __global__ void __launch_bounds__(THREADS)
key_gradient(float* d_scores, View<const element, 4> q, View<const element, 4> k, View<const element, 4> v,
             View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
             View<element, 4> dk, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const Scores<CAUSAL> scores(T, T_kv, scale);
    multiply_over_queries<QueryHead>(d_scores, q, dk, NH, NH_kv, scores, reinterpret_cast<float*>(smem));

    __syncthreads();  // dK is written
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {q, k, v, out, dout, lse, NH, NH / NH_kv, scores};
    const Place place(NH_kv);
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < min(BLOCK_M, T_kv - place.tile * BLOCK_M); row += THREADS / 32)
        exact.mend_key<true>(dk, place.b, place.h, place.tile * BLOCK_M + row);
}

/// dQ = dS K of BLOCK_M queries.
extern "C" __global__ void __launch_bounds__(THREADS)
query_gradient(float* d_scores, View<const element, 4> q, View<const element, 4> k, View<const element, 4> v,
               View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
               View<element, 4> dq, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const pair_tile = reinterpret_cast<float*>(smem);
    float* const row_tile = pair_tile + BLOCK_M * PITCH_K;
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const Place place(NH);
    const int query = place.tile * BLOCK_M;
    const Pairs ds(d_scores, place.matrix, T, T_kv);
    const element* const keys = matrix_of(k, place.b, place.h / (NH / NH_kv));
    const bool vectors = HS % VEC == 0 && allows_vectors<VEC>(k);
    const Grid at;

    using H = QueryHead;
    float acc[M_TILE][H::COLS] = {};
    const int key_end = SKIP_MASKED ? scores.keys_seen(min(query + BLOCK_M, T) - 1) : T_kv;
#pragma unroll 1
    for (int key = 0; key < key_end; key += BLOCK_K) {
        __syncthreads();  // the tiles of the step before have been read
        stage_pairs<BLOCK_M, BLOCK_K, PITCH_K>(pair_tile, ds, query, key, scores);
        stage<BLOCK_K, HS_TILE, H::PITCH, VEC, THREADS>(row_tile, keys + key * k.stride[2], k.stride[2], k.stride[3],
                                                        T_kv - key, vectors, HS);
        __syncthreads();
        multiply_nn<M_TILE, H::COLS, BLOCK_K, Grid::ROWS * PITCH_K, H::PITCH, H::WIDTH * Grid::COLS, H::WIDTH, 4,
                    UNROLL>(acc, pair_tile + at.row * PITCH_K, row_tile + H::WIDTH * at.col);
    }
    write_rows<H>(dq, place, query + at.row, T, acc, [](int i) { return i * Grid::ROWS; });

    __syncthreads();  // dQ is written
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {q, k, v, out, dout, lse, NH, NH / NH_kv, scores};
#pragma unroll 1
    for (int row = threadIdx.x / 32; row < min(BLOCK_M, T - query); row += THREADS / 32)
        exact.mend_query(dq, place.b, place.h, query + row);
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
// buffer weights: 50331648 fp32, workspace
// buffer d_scores: 50331648 fp32, workspace
// launch row_delta grid=(12288, 1, 1) block=(128, 1, 1) smem=0 (out, dout, delta, NH, T)
// launch attention_weights grid=(48, 16, 16) block=(128, 1, 1) smem=18432 (q, k, lse, weights, NH, NH_kv, T, T_kv, scale)
// launch score_gradients grid=(48, 16, 16) block=(128, 1, 1) smem=18432 (dout, v, weights, delta, d_scores, NH, NH_kv, T, T_kv, scale)
// launch value_gradient grid=(48, 16, 1) block=(128, 1, 1) smem=17408 (weights, q, k, v, out, dout, lse, dv, NH, NH_kv, T, T_kv, scale)
// launch key_gradient grid=(48, 16, 1) block=(128, 1, 1) smem=17408 (d_scores, q, k, v, out, dout, lse, dk, NH, NH_kv, T, T_kv, scale)
// launch query_gradient grid=(48, 16, 1) block=(128, 1, 1) smem=17920 (d_scores, q, k, v, out, dout, lse, dq, NH, NH_kv, T, T_kv, scale)
