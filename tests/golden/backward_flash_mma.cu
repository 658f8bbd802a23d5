// autotune: backward/flash_mma: tiles on tensor cores (mma.sync), 16-bit operands, fp32 accumulation; scores recomputed transposed, so that P and dS feed the next products from registers
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: DQ_ACCUMULATE=atomic BLOCK_N=128 BLOCK_M=64 OWN_TILES=2 WARPS_D=1 SPLIT=columns CHUNK=32 SCHEDULE=together DQ_WARPS_M=2 STAGES=2 IN_REGISTERS=none MIN_BLOCKS=2 STMATRIX=False SWIZZLE=True REVERSE=True PEEL=True HEADS_AT_ONCE=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          798357831b7a00c6

#include "common/attention/exact.cuh"
#include "common/attention/fragment_sums.cuh"
#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/attention/steps.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/tile/staged.cuh"
#include "common/tile/tile_copy.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/fragments.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/products.cuh"

using element = __half;

constexpr int HS = 64;
constexpr bool CAUSAL = true;
constexpr int BLOCK_N = 128;      // keys a block
constexpr int BLOCK_M = 64;       // queries a step
constexpr int OWN_TILES = 2;      // tiles of 16 rows that a warp owns
constexpr int WARPS_D = 1;        // that own the same keys and share out queries, and columns of dK and dV
constexpr int CHUNK = 32;         // queries a warp works on at once
constexpr int STAGES = 2;         // tiles of Q and of dO in shared memory
constexpr bool K_IN_REGISTERS = false;  // or read from shared memory at every step
constexpr bool V_IN_REGISTERS = false;
constexpr bool REVERSE = true;     // from the last step to the first
constexpr int MIN_BLOCKS = 2;     // a multiprocessor, asked of the register allocator
constexpr int ROW_THREADS = 256;  // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;      // of them a row, to compute its delta

constexpr int WARPS = BLOCK_N * WARPS_D / OWN_TILES / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int C_TILES = CHUNK / 8;               // tiles of 8 in a chunk
constexpr int D_TILES = HS / WARPS_D / 8;        // tiles of 8 columns of the head in a warp's parts of dK and dV
constexpr int NEXT_TILE = REVERSE ? -BLOCK_M : BLOCK_M;  // rows from one step's to the next one's
constexpr int NONE_SEEN = 1 << 30;
constexpr float LARGEST_LSE = 16384.0f;  // in base 2: its rounding is a rounding of an element

using Tile = SharedTile<HS, true>;
using Products = float[OWN_TILES][C_TILES][4];  // S or dP: own rows by a chunk
using Gradients = float[OWN_TILES][D_TILES][4];  // own keys by the head
using PairTile = SharedTile<BLOCK_M, true>;  // dS, transposed: keys by queries

constexpr int DQ_WARPS_M = 2;                  // warps over the queries of dQ, the others over its columns
constexpr int DQ_WARPS_D = WARPS / DQ_WARPS_M;
constexpr int DQ_M_TILES = BLOCK_M / DQ_WARPS_M / 16;  // tiles of 16 queries a warp
constexpr int DQ_D_TILES = HS / DQ_WARPS_D / 8;        // tiles of 8 columns a warp
constexpr int DQ_PARTS = 1;                    // in which it computes these columns, one after the other

/// What the forward pass left of a query, for the backward pass.
struct alignas(8) RowSums {
    float lse;    // as the origin of weights; +inf, which makes them all 0, for a query without keys or past the last one
    float delta;  // sum of dO * O
};

/// What all blocks work on.
struct Operands {
    View<element, 4> q;
    View<element, 4> k;
    View<element, 4> v;
    View<element, 4> out;
    View<element, 4> dout;
    const float* lse;
    const RowSums* row_sums;  // of `rows` queries a head
    int NH;
    int NH_kv;
    int T;
    int T_kv;
    int rows;
    float scale;

    __device__ __forceinline__ ExactGradients<HS, CAUSAL, element> exact() const
    {
        return {read_only(q), read_only(k), read_only(v), read_only(out),           read_only(dout),
                lse,          NH,           NH / NH_kv,   Scores<CAUSAL>(T, T_kv, scale)};
    }

    /// A query's number among all those that have row sums.
    __device__ __forceinline__ long long number(int batch, int head, int query) const
    {
        return (static_cast<long long>(batch) * NH + head) * rows + query;
    }
};

/// What a block works on.
struct Place {
    int batch;
    int head;
    int block;  // of the head

    /// Where a batch has `heads` heads; computed every time it is asked for.
    static __device__ __forceinline__ Place of_block(int heads)
    {
        const int matrix = opaque(blockIdx.x);
        return {matrix / heads, matrix % heads, static_cast<int>(blockIdx.y)};
    }
};

/// Starts to copy ROWS rows of a head from row `first` on; rows from `rows` on become 0.
template <int ROWS>
__device__ __forceinline__ void copy_rows(const TileCopier<Tile, THREADS>& copier, unsigned char* tile,
                                          const View<element, 4>& tensor, int batch, int head, int first, int rows,
                                          bool vectors)
{
    copier.copy<ROWS>(tile, copier.start(tensor, matrix_of(tensor, batch, head), first), tensor, rows - first, vectors);
}

/// delta and the log-sum-exp in base 2 of all queries, ROW_LANES threads a row; clears dQ, which blocks of keys add to.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_delta(View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
          float* __restrict__ row_sums, float* __restrict__ dq_accumulator, int NH, int T, int T_kv, int rows,
          float scale)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>(NH, rows);
    const bool exists = place.t < T;
    const float log_sum = exists ? lse[place.number(NH, T)] : minus_infinity();
    const bool vectors = allows_vectors<8>(out) && allows_vectors<8>(dout);
    float delta = 0.0f;
    if (exists)
        delta = vectors ? dot_of_lane<HS, 8, ROW_LANES>(out, dout, place, true)
                        : dot_of_lane<HS, 8, ROW_LANES>(out, dout, place, false);
    delta = reduce_lanes<Sum, 1, ROW_LANES>(delta);
    if (place.t >= rows) return;
    if (threadIdx.x % ROW_LANES == 0) {
        const bool sees_keys = log_sum != minus_infinity();
        reinterpret_cast<RowSums*>(row_sums)[place.number(NH, rows)] =
            RowSums{Scores<CAUSAL>(T, T_kv, scale).origin_of(trusted_log_sum(log_sum, LARGEST_LSE)), sees_keys ? delta : 0.0f};
    }
    float4* const sums = reinterpret_cast<float4*>(dq_accumulator + place.number(NH, rows) * HS);
#pragma unroll
    for (int c = threadIdx.x % ROW_LANES; c < HS / 4; c += ROW_LANES) sums[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/// dK and dV of a block's BLOCK_N keys, summed over all queries that see them and over the query heads that share them;
/// adds their share of dQ. `heads`: of the grid.
__device__ __forceinline__ void key_gradients_of(const Operands& in, const View<element, 4>& dk,
                                                 const View<element, 4>& dv, float* dq_accumulator, int heads,
                                                 unsigned char* smem)
{
    const Place place = Place::of_block(heads);
    const int batch = place.batch;
    const int head_kv = place.head;
    const int key = place.block * BLOCK_N;
    unsigned char* const k_tile = smem;
    unsigned char* const v_tile = k_tile + Tile::bytes(BLOCK_N);
    unsigned char* const q_tiles = v_tile + Tile::bytes(BLOCK_N);
    unsigned char* const dout_tiles = q_tiles + STAGES * Tile::bytes(BLOCK_M);
    unsigned char* const ds_tile = dout_tiles + STAGES * Tile::bytes(BLOCK_M);
    unsigned char* const sums_tiles = ds_tile + PairTile::bytes(BLOCK_N);

    const int head_begin = head_kv * (in.NH / in.NH_kv);  // of those that share the keys
    const int head_end = head_begin + in.NH / in.NH_kv;

    const Scores<CAUSAL> scores(in.T, in.T_kv, in.scale);
    // Tiles of queries that see a key of this block. In the first of them some pairs are hidden; in all of them if some
    // of the block's keys do not exist.
    const int query_begin = scores.first_query(key) / BLOCK_M * BLOCK_M;
    const int query_end = (in.T + BLOCK_M - 1) / BLOCK_M * BLOCK_M;
    const int masked_end = key + BLOCK_N > in.T_kv ? query_end : scores.first_query(key + BLOCK_N - 1);
    const int query_first = query_end - BLOCK_M;
    const int query_last = query_begin;

    const TileCopier<Tile, THREADS> copier;
    const bool vectors_q = allows_vectors<8>(in.q);
    const bool vectors_dout = allows_vectors<8>(in.dout);
    const auto copy = [&](int head, int query, int stage) {
        const int batch_now = opaque(batch);  // see `attend`
        const int offset = stage * Tile::bytes(BLOCK_M);
        copy_rows<BLOCK_M>(copier, q_tiles + offset, in.q, batch_now, head, query, in.T, vectors_q);
        copy_rows<BLOCK_M>(copier, dout_tiles + offset, in.dout, batch_now, head, query, in.T, vectors_dout);
        if (threadIdx.x < BLOCK_M / 2)  // two queries a copy
            copy_async(shared_address(sums_tiles) + (stage * BLOCK_M + 2 * threadIdx.x) * sizeof(RowSums),
                       in.row_sums + in.number(batch_now, head, query + 2 * threadIdx.x), true);
    };
    const auto copy_after = [&](int head, int query, int stage) {
        const bool last = query == query_last;
        if (!last || head + 1 < head_end) copy(last ? head + 1 : head, last ? query_first : query + NEXT_TILE, stage);
        commit_copies();
    };

    copy_rows<BLOCK_N>(copier, k_tile, in.k, batch, head_kv, key, in.T_kv, allows_vectors<8>(in.k));
    copy_rows<BLOCK_N>(copier, v_tile, in.v, batch, head_kv, key, in.T_kv, allows_vectors<8>(in.v));
    commit_copies();
    if (query_begin < query_end) copy(head_begin, query_first, 0);
    commit_copies();

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp * 16 * OWN_TILES;  // this warp's first key in the block
    const int rows_first = ldmatrix_rows_first<Tile>();  // this lane's row in a tile, for ldmatrix
    const int cols_first = ldmatrix_cols_first<Tile>();
    OwnRows<Tile, OWN_TILES, K_IN_REGISTERS> keys(shared_address(k_tile) + Tile::bytes(warp_row) + rows_first);
    OwnRows<Tile, OWN_TILES, V_IN_REGISTERS> values(shared_address(v_tile) + Tile::bytes(warp_row) + rows_first);
    Gradients dk_part = {};
    Gradients dv_part = {};

    // Hides the queries that do not see a key, in a chunk from `query` on.
    const auto mask = [&](Products& s, int query) {
#pragma unroll
        for (int m = 0; m < OWN_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int own = key + warp_row + 16 * m + 8 * half + lane / 4;
                const int hidden = (own < in.T_kv ? scores.first_query(own) - query : NONE_SEEN) - lane % 4 * 2;
#pragma unroll
                for (int n = 0; n < C_TILES; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (8 * n + e < hidden) s[m][n][2 * half + e] = minus_infinity();
            }
    };

    // Writes P or dS of this warp's keys and 16 queries from `column` of the tile on.
    const int pair_lane = opaque(PairTile::offset(lane / 4, 0) + lane % 4 * 4) + PairTile::bytes(warp_row);
    const auto write_pairs = [&](unsigned char* tile, const uint32_t (&a)[OWN_TILES][4], int column) {
#pragma unroll
        for (int m = 0; m < OWN_TILES; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                *reinterpret_cast<uint32_t*>(tile + PairTile::advance(pair_lane, column / 8 + i / 2) +
                                             PairTile::bytes(16 * m + i % 2 * 8)) = a[m][i];
    };

    // This warp's part of dQ of a tile, over all keys of the block.
    const int dq_row = warp / DQ_WARPS_D * 16 * DQ_M_TILES;
    const int dq_part = warp % DQ_WARPS_D;
    const int dq_columns_lane = opaque(Tile::advance(rows_first, 2 * dq_part));
    const int ds_column = PairTile::advance(ldmatrix_cols_first<PairTile>(), dq_row / 8);
    const auto add_dq = [&](float* sums, const unsigned char* pairs) {
#pragma unroll 1
        for (int from = 0; from < DQ_D_TILES; from += DQ_D_TILES / DQ_PARTS) {
            float dq[DQ_M_TILES][DQ_D_TILES / DQ_PARTS][4] = {};
#pragma unroll
            for (int own = 0; own < BLOCK_N; own += 16) {
                uint32_t a[DQ_M_TILES][4];
#pragma unroll
                for (int m = 0; m < DQ_M_TILES; ++m)
                    ldmatrix_transposed(
                        a[m], shared_address(pairs) + PairTile::advance(ds_column, 2 * m) + PairTile::bytes(own));
                multiply_over_rows<element, Tile, DQ_WARPS_D>(
                    dq, a, shared_address(k_tile) + Tile::bytes(own) + dq_columns_lane, from);
            }
#pragma unroll
            for (int m = 0; m < DQ_M_TILES; ++m)
#pragma unroll
                for (int n = 0; n < DQ_D_TILES / DQ_PARTS; ++n)
                    FragmentSums::add(sums + m * 16 * HS + nth_piece<DQ_WARPS_D>(from + n) * 128, dq[m][n]);
        }
    };
    const auto dq_sums = [&](int head, int query) {
        return dq_accumulator + in.number(batch, head, query + dq_row) * HS + dq_part * 256;
    };

    int stage = 0;
    const auto attend = [&](int head_at, int query_at, auto masked) {
        // Registers are what there is least of: from here on the compiler cannot tell that these follow from those of
        // the step before, and so computes addresses when they are used and does not keep them.
        const int head = opaque(head_at);
        const int query = opaque(query_at);
        wait_for_copies<0>();
        __syncthreads();  // the step's tiles are there, and those of the step before have been read
        copy_after(head, query, stage ^ 1);
        const SharedAddress q_tile = shared_address(q_tiles + stage * Tile::bytes(BLOCK_M));
        const SharedAddress dout_tile = shared_address(dout_tiles + stage * Tile::bytes(BLOCK_M));
        const float4* const sums = reinterpret_cast<const float4*>(sums_tiles + stage * BLOCK_M * sizeof(RowSums));
        const auto multiply = [&](Products& s, Products& dp, int first) {
            multiply_over_head<element>(s, keys, q_tile + Tile::bytes(first) + cols_first);
            multiply_over_head<element>(dp, values, dout_tile + Tile::bytes(first) + cols_first);
        };
        const auto weigh = [&](Products& s, Products& dp, int first) {  // S becomes P, dP becomes dS
#pragma unroll
            for (int n = 0; n < C_TILES; ++n) {
                const float4 both = sums[(first + 8 * n) / 2 + lane % 4];  // of two neighbouring queries
#pragma unroll
                for (int m = 0; m < OWN_TILES; ++m)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        s[m][n][e] = scores.weight(s[m][n][e], e % 2 ? both.z : both.x);
                        dp[m][n][e] = s[m][n][e] * (dp[m][n][e] - (e % 2 ? both.w : both.y));
                    }
            }
        };
        const auto pass_on_p = [&](const uint32_t (&p)[OWN_TILES][4], int first) {  // dV += P^T dO
            multiply_over_rows<element, Tile>(dv_part, p, dout_tile + Tile::bytes(first) + rows_first);
        };
        const auto pass_on_ds = [&](const uint32_t (&ds)[OWN_TILES][4], int first) {  // dK += dS^T Q
            write_pairs(ds_tile, ds, first);
            multiply_over_rows<element, Tile>(dk_part, ds, q_tile + Tile::bytes(first) + rows_first);
        };
        const auto pass_on = [&](const Products& p, const Products& ds, int first) {
            uint32_t a[OWN_TILES][4];
#pragma unroll
            for (int i = 0; i < CHUNK; i += 16) {
                as_operand<element>(a, p, i / 8);
                pass_on_p(a, first + i);
            }
#pragma unroll
            for (int i = 0; i < CHUNK; i += 16) {
                as_operand<element>(a, ds, i / 8);
                pass_on_ds(a, first + i);
            }
        };
        constexpr int CHUNKS = BLOCK_M / CHUNK;
        const auto chunk = [&](int c) { return c * CHUNK; };

#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const int first = chunk(c);
            if (masked && query + first + CHUNK <= scores.first_query(key + warp_row)) {  // none sees a key of the warp
                const uint32_t zeros[OWN_TILES][4] = {};
#pragma unroll
                for (int i = 0; i < CHUNK; i += 16) write_pairs(ds_tile, zeros, first + i);
                continue;
            }
            Products s;
            Products ds;
            multiply(s, ds, first);
            if (masked) mask(s, query + first);
            weigh(s, ds, first);
            pass_on(s, ds, first);
        }
        __syncthreads();  // dS is there
        stage ^= 1;
        add_dq(dq_sums(head, query), ds_tile);
    };

#pragma unroll 1
    for (int head = head_begin; head < head_end; ++head) {
        int query = query_first;
#pragma unroll 1
        for (; query >= max(query_begin, masked_end); query -= BLOCK_M) attend(head, query, Known<false>());
#pragma unroll 1
        for (; query >= query_begin; query -= BLOCK_M) attend(head, query, Known<true>());
    }

    wait_for_copies<0>();
    __syncthreads();  // K and V have been read; the gradients take their place
    bool finite = place_rows<element, Tile, 1>(k_tile, warp_row, dk_part, in.scale, 0);
    finite &= place_rows<element, Tile, 1>(v_tile, warp_row, dv_part, 1.0f, 0);
    __syncthreads();
    const Place to = Place::of_block(heads);  // again: not held in registers all the while
    const int first = to.block * BLOCK_N;
    const int rows = in.T_kv - first;
    write_rows<element, Tile, BLOCK_N, THREADS>(matrix_of(dk, to.batch, to.head) + first * dk.stride[2], dk, rows, k_tile);
    write_rows<element, Tile, BLOCK_N, THREADS>(matrix_of(dv, to.batch, to.head) + first * dv.stride[2], dv, rows, v_tile);

    if (!__syncthreads_or(!finite)) return;
    const Place again = Place::of_block(heads);
    const auto exact = in.exact();
#pragma unroll 1
    for (int n = opaque(threadIdx.x) / 32; n < BLOCK_N; n += WARPS) {
        const int own = again.block * BLOCK_N + n;
        if (own >= in.T_kv) break;
        exact.mend_key<true>(dk, again.batch, again.head, own);
        exact.mend_key<false>(dv, again.batch, again.head, own);
    }
}

/// dK and dV, and dQ added up in fp32; a block is BLOCK_N keys of a key head.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
key_gradients(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out, View<element, 4> dout,
              const float* __restrict__ lse, const float* __restrict__ row_sums, View<element, 4> dk, View<element, 4> dv,
              float* __restrict__ dq_accumulator, int B, int NH, int NH_kv, int T, int T_kv, int rows,
              float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const Operands in = {q,  k,     v, out,  dout, lse, reinterpret_cast<const RowSums*>(row_sums),
                         NH, NH_kv, T, T_kv, rows, scale};
    key_gradients_of(in, dk, dv, dq_accumulator, NH_kv, smem);
}

/// Scales and rounds the finished dQ; a warp has 16 rows by 32 columns.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
round_query_gradient(const float* __restrict__ dq_accumulator, View<element, 4> q, View<element, 4> k,
                     View<element, 4> v, View<element, 4> out, View<element, 4> dout, const float* __restrict__ lse,
                     View<element, 4> dq, int NH, int NH_kv, int T, int T_kv, int rows, float scale)
{
    const int lane = threadIdx.x % 32;
    const RowPlace block = first_row_of_block<ROW_THREADS / 32>(NH, rows / 16 * (HS / 32));  // tiles, in place of rows
    const int tile = block.t + threadIdx.x / 32;
    const int first = tile / (HS / 32) * 16;
    const int col = tile % (HS / 32) * 32;
    if (first >= T) return;
    const RowPlace place = {block.b, block.h, first};
    const float* const sums = dq_accumulator + place.number(NH, rows) * HS + col * 16;
    uint32_t pairs[2][4];  // of the tile's upper and lower rows, of each piece of 8 columns
    float zero[2] = {};    // 0 times these rows
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float x[4];
        FragmentSums::read(x, sums + i * 128);
        pairs[0][i] = pack<element>(x[0] * scale, x[1] * scale);
        pairs[1][i] = pack<element>(x[2] * scale, x[3] * scale);
#pragma unroll
        for (int e = 0; e < 4; ++e) zero[e / 2] = fmaf(x[e], 0.0f, zero[e / 2]);
    }
    const bool vectors = allows_vectors<8>(dq);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        transpose_quad(pairs[half]);
        const RowPlace row = {place.b, place.h, first + 8 * half + lane / 4};
        if (row.t >= T) continue;
        const uint32_t(&x)[4] = pairs[half];
        element* const to = row_of(dq, row) + (col + lane % 4 * 8) * dq.stride[3];
        if (vectors) {
            __stwb(reinterpret_cast<uint4*>(to), make_uint4(x[0], x[1], x[2], x[3]));  // never taken apart, as `=` is
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) to[e * dq.stride[3]] = half_of<element>(x[e / 2], e % 2);
        }
    }

    if (__all_sync(ALL_LANES, zero[0] == 0.0f && zero[1] == 0.0f)) return;
    __syncwarp();  // the tile is written
    const ExactGradients<HS, CAUSAL, element> exact = {
        read_only(q), read_only(k), read_only(v), read_only(out), read_only(dout), lse, NH, NH / NH_kv,
        Scores<CAUSAL>(T, T_kv, scale)};
#pragma unroll 1
    for (int n = 0; n < min(16, T - first); ++n) {
        if (__all_sync(ALL_LANES, lane / 4 != n % 8 || (n < 8 ? zero[0] : zero[1]) == 0.0f)) continue;
        const double right = exact.query_column(place.b, place.h, first + n, col + lane);
        row_of(dq, RowPlace{place.b, place.h, first + n})[(col + lane) * dq.stride[3]] =
            from_float<element>(static_cast<float>(right));
    }
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
// buffer row_sums: 98304 fp32, workspace
// buffer dq_accumulator: 3145728 fp32, workspace
// launch row_delta grid=(1536, 1, 1) block=(256, 1, 1) smem=0 (out, dout, lse, row_sums, dq_accumulator, NH, T, T_kv, ROWS, scale)
// launch key_gradients grid=(48, 8, 1) block=(128, 1, 1) smem=82944 (q, k, v, out, dout, lse, row_sums, dk, dv, dq_accumulator, B, NH, NH_kv, T, T_kv, ROWS, scale)
// launch round_query_gradient grid=(768, 1, 1) block=(256, 1, 1) smem=0 (dq_accumulator, q, k, v, out, dout, lse, dq, NH, NH_kv, T, T_kv, ROWS, scale)
