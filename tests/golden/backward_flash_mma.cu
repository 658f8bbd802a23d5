// autotune: backward/flash_mma: tiles on tensor cores (mma.sync), 16-bit operands, fp32 accumulation; scores recomputed transposed, so that P and dS feed the next products from registers
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: DQ_ACCUMULATE=atomic BLOCK_N=128 BLOCK_M=64 OWN_TILES=2 WARPS_D=1 SPLIT=columns CHUNK=32 SCHEDULE=together DQ_WARPS_M=2 STAGES=2 IN_REGISTERS=none MIN_BLOCKS=2 STMATRIX=False SWIZZLE=True REVERSE=True PEEL=True HEADS_AT_ONCE=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          0508135218c4b34e

#include "common/attention/exact.cuh"
#include "common/attention/fragment_sums.cuh"
#include "common/attention/gradient_operands.cuh"
#include "common/attention/grid.cuh"
#include "common/attention/row_dots.cuh"
#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/score_tiles.cuh"
#include "common/attention/steps.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/tile/tile_copy.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/fragments.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/products.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

enum class Schedule { TOGETHER, OVERLAPPED, IN_TURN };

constexpr int HS = 64;
constexpr bool CAUSAL = true;
constexpr bool ATOMIC = true;        // blocks of keys add up dQ in memory; else it has blocks of its own
constexpr bool DQ_LATER = false;     // a step's share of dQ is computed in the next step
constexpr int BLOCK_N = 128;       // keys a block that computes dK and dV
constexpr int BLOCK_M = 64;        // queries a step; keys, for a block that computes dQ
constexpr int OWN_TILES = 2;       // tiles of 16 rows that a warp owns
constexpr int WARPS_D = 1;         // that own the same keys and share out queries, and columns of dK and dV
constexpr bool SPLIT_GRADIENTS = false;  // half of the warps have parts of dV, half of dK; else all of both
constexpr int CHUNK = 32;          // queries a warp works on at once
constexpr Schedule SCHEDULE = Schedule::TOGETHER;
constexpr int STAGES = 2;          // tiles of Q and of dO in shared memory, or of K and of V
constexpr bool K_IN_REGISTERS = false;  // or read from shared memory at every step; of dQ's blocks, Q
constexpr bool V_IN_REGISTERS = false;  // of dQ's blocks, dO
constexpr int MIN_BLOCKS = 2;      // a multiprocessor, asked of the register allocator
constexpr bool STMATRIX = false;     // writes P and dS
constexpr bool REVERSE = true;      // from the last step to the first
constexpr bool PEEL = true;         // steps with a mask have a loop of their own
constexpr int HEADS_AT_ONCE = 0;   // whose blocks follow one another in the grid; 0: all
constexpr int ROW_THREADS = 256;   // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;       // of them a row, to compute its delta

constexpr int WARPS = BLOCK_N * WARPS_D / OWN_TILES / 16;
constexpr int THREADS = 32 * WARPS;
constexpr bool SHARED_PAIRS = WARPS_D > 1;  // P and dS change warps, by way of shared memory
constexpr int C_TILES = CHUNK / 8;          // tiles of 8 in a chunk
constexpr int GRADIENT_TILES = (SPLIT_GRADIENTS ? 2 : 1) * OWN_TILES;  // of 16 keys in a warp's parts of dK and dV
constexpr int D_TILES = HS / WARPS_D / 8;                              // of 8 columns of the head
constexpr int PAIR_TILES = SHARED_PAIRS || DQ_LATER ? 2 : ATOMIC ? 1 : 0;
constexpr int NEXT_TILE = REVERSE ? -BLOCK_M : BLOCK_M;  // rows from one step's to the next one's
constexpr float LARGEST_LSE = 16384.0f;  // in base 2: its rounding is a rounding of an element

using Tile = SharedTile<HS, true>;
using PairTile = SharedTile<BLOCK_M, true>;      // P or dS, transposed: keys by queries
using Products = float[OWN_TILES][C_TILES][4];      // S or dP: own rows by a chunk
using Pairs = uint32_t[OWN_TILES][4];               // P or dS, rounded, of 16 queries
using Gradients = float[GRADIENT_TILES][D_TILES][4];
using Operands = GradientOperands<element, HS, CAUSAL>;
using Place = BlockPlace<HEADS_AT_ONCE>;

constexpr int DQ_WARPS_M = 2;                  // warps over the queries of dQ, the others over its columns
constexpr int DQ_WARPS_D = WARPS / DQ_WARPS_M;
constexpr int DQ_M_TILES = BLOCK_M / DQ_WARPS_M / 16;  // tiles of 16 queries a warp
constexpr int DQ_D_TILES = HS / DQ_WARPS_D / 8;        // tiles of 8 columns a warp
constexpr int DQ_PARTS = 1;                    // in which it computes these columns, one after the other

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

/// Shared memory of a block of keys.
struct KeyMemory {
    unsigned char* k;
    unsigned char* v;
    unsigned char* q;      // STAGES tiles
    unsigned char* dout;   // STAGES tiles
    unsigned char* pairs;  // P and dS; dS; dS of this step and the one before; or nothing
    unsigned char* sums;   // row sums of STAGES tiles' queries

    explicit __device__ __forceinline__ KeyMemory(unsigned char* smem)
        : k(smem), v(k + Tile::bytes(BLOCK_N)), q(v + Tile::bytes(BLOCK_N)), dout(q + STAGES * Tile::bytes(BLOCK_M)),
          pairs(dout + STAGES * Tile::bytes(BLOCK_M)), sums(pairs + PAIR_TILES * PairTile::bytes(BLOCK_N))
    {
    }

    __device__ __forceinline__ unsigned char* p() const { return pairs; }
    __device__ __forceinline__ unsigned char* ds(int stage) const
    {
        return pairs + (SHARED_PAIRS ? 1 : DQ_LATER ? stage : 0) * PairTile::bytes(BLOCK_N);
    }
};

/// Tiles of queries on their way to a block of keys, for one query head after the other that shares the keys.
struct QueryStream {
    const Operands& in;
    const KeyMemory& memory;
    int batch;
    int head_end;
    int query_first;  // of the first step of a head
    int query_last;   // of its last step
    TileCopier<Tile, THREADS> copier;
    bool vectors_q = allows_vectors<8>(in.q);
    bool vectors_dout = allows_vectors<8>(in.dout);

    __device__ __forceinline__ void copy(int head, int query, int stage) const
    {
        const int batch_now = opaque(batch);  // see `attend`
        const int offset = stage * Tile::bytes(BLOCK_M);
        copy_rows<BLOCK_M>(copier, memory.q + offset, in.q, batch_now, head, query, in.T, vectors_q);
        copy_rows<BLOCK_M>(copier, memory.dout + offset, in.dout, batch_now, head, query, in.T, vectors_dout);
        if (threadIdx.x < BLOCK_M / 2)  // two queries a copy
            copy_async(shared_address(memory.sums) + (stage * BLOCK_M + 2 * threadIdx.x) * sizeof(RowSums),
                       in.sums_of(batch_now, head, query + 2 * threadIdx.x), true);
    }

    /// The step after that of (head, query), if there is one.
    __device__ __forceinline__ void copy_after(int head, int query, int stage) const
    {
        const bool last = query == query_last;
        if (!last || head + 1 < head_end) copy(last ? head + 1 : head, last ? query_first : query + NEXT_TILE, stage);
        commit_copies();
    }
};

/// Where a warp writes P and dS of its keys: the lane's place in a PairTile.
struct PairWriter {
    int place;

    __device__ __forceinline__ PairWriter(int warp_row, int lane)
        : place((STMATRIX ? ldmatrix_rows_first<PairTile>() : opaque(PairTile::offset(lane / 4, 0) + lane % 4 * 4)) +
                PairTile::bytes(warp_row))
    {
    }

    /// 16 queries from `column` of the tile on.
    __device__ __forceinline__ void write(unsigned char* tile, const Pairs& a, int column) const
    {
#pragma unroll
        for (int m = 0; m < OWN_TILES; ++m) {
            if constexpr (STMATRIX) {
                stmatrix(shared_address(tile) + PairTile::advance(place, column / 8) + PairTile::bytes(16 * m), a[m]);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    *reinterpret_cast<uint32_t*>(tile + PairTile::advance(place, column / 8 + i / 2) +
                                                 PairTile::bytes(16 * m + i % 2 * 8)) = a[m][i];
            }
        }
    }
};

/// A warp's place in a block of keys, and where its lanes read tiles, for ldmatrix.
struct KeyLanes {
    int lane;
    int row;   // the warp's first key in the block
    int part;  // its number among the warps that own these keys
    int rows_first = ldmatrix_rows_first<Tile>();
    int cols_first = ldmatrix_cols_first<Tile>();

    __device__ __forceinline__ KeyLanes(int warp, int lane_)
        : lane(lane_), row(warp / WARPS_D * 16 * OWN_TILES), part(warp % WARPS_D)
    {
    }
};

/// A warp's step: its keys by the queries of a tile, a chunk of them at a time. `first` is a chunk's first query in the
/// tile. Sums: Gradients.
template <class Sums>
struct KeyStep {
    const Scores<CAUSAL>& scores;
    const OwnRows<Tile, OWN_TILES, K_IN_REGISTERS>& keys;
    const OwnRows<Tile, OWN_TILES, V_IN_REGISTERS>& values;
    const KeyLanes& lanes;
    const PairWriter& writer;
    int pair_rows_first;
    Sums& dk;  // where P and dS stay with the warp, it adds to these
    Sums& dv;
    SharedAddress q;
    SharedAddress dout;
    const float4* sums;  // of two neighbouring queries each
    unsigned char* p;    // where P and dS change warps, it writes them here
    unsigned char* ds;

    static __device__ __forceinline__ int chunk(int c, int part) { return (c * WARPS_D + part) * CHUNK; }

    /// S and dP of a chunk.
    __device__ __forceinline__ void multiply(Products& s, Products& dp, int first) const
    {
        multiply_over_head<element>(s, keys, q + Tile::bytes(first) + lanes.cols_first);
        multiply_over_head<element>(dp, values, dout + Tile::bytes(first) + lanes.cols_first);
    }

    /// dV += P^T dO for 16 queries, or on to the warps that do.
    __device__ __forceinline__ void pass_on_p(const Pairs& a, int first) const
    {
        if constexpr (SHARED_PAIRS)
            writer.write(p, a, first);
        else
            multiply_over_rows<element, Tile>(dv, a, dout + Tile::bytes(first) + lanes.rows_first);
    }

    /// dK += dS^T Q for 16 queries, and on to the warps that need dS.
    __device__ __forceinline__ void pass_on_ds(const Pairs& a, int first) const
    {
        if constexpr (PAIR_TILES > 0) writer.write(ds, a, first);
        if constexpr (!SHARED_PAIRS)
            multiply_over_rows<element, Tile>(dk, a, q + Tile::bytes(first) + lanes.rows_first);
    }

    __device__ __forceinline__ void pass_on(const Products& weights, const Products& gradients, int first) const
    {
        Pairs a;
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            as_operand<element>(a, weights, i / 8);
            pass_on_p(a, first + i);
        }
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            as_operand<element>(a, gradients, i / 8);
            pass_on_ds(a, first + i);
        }
    }

    /// A chunk of which no query sees a key of the warp.
    __device__ __forceinline__ void pass_on_zeros(int first) const
    {
        if constexpr (PAIR_TILES > 0) {
            const Pairs zeros = {};
#pragma unroll
            for (int i = 0; i < CHUNK; i += 16) {
                if constexpr (SHARED_PAIRS) writer.write(p, zeros, first + i);
                writer.write(ds, zeros, first + i);
            }
        }
    }

    /// All chunks, none of them masked: tensor cores multiply the next one while this one is weighed.
    template <int CHUNKS>
    __device__ __forceinline__ void overlapped() const
    {
        Products s[2];
        Products dp[2];
        multiply(s[0], dp[0], chunk(0, lanes.part));
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            if (c + 1 < CHUNKS) multiply(s[(c + 1) % 2], dp[(c + 1) % 2], chunk(c + 1, lanes.part));
            weigh_columns<false>(s[c % 2], dp[c % 2], scores, sums, chunk(c, lanes.part), lanes.lane);
            pass_on(s[c % 2], dp[c % 2], chunk(c, lanes.part));
        }
    }

    /// A chunk, S and dP in registers at the same time. `hide` masks S.
    template <class Hide>
    __device__ __forceinline__ void together(int first, const Hide& hide) const
    {
        Products s;
        Products dp;
        multiply(s, dp, first);
        hide(s);
        weigh_columns<false>(s, dp, scores, sums, first, lanes.lane);
        pass_on(s, dp, first);
    }

    /// A chunk, dP in the registers of S, from P as it was rounded.
    template <class Hide>
    __device__ __forceinline__ void in_turn(int first, const Hide& hide) const
    {
        Products s;
        multiply_over_head<element>(s, keys, q + Tile::bytes(first) + lanes.cols_first);
        hide(s);
        weigh_columns<false>(s, scores, sums, first, lanes.lane);
        Pairs rounded[SHARED_PAIRS ? 1 : CHUNK / 16];  // P; SHARED_PAIRS: read again from where it was passed on
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            as_operand<element>(rounded[SHARED_PAIRS ? 0 : i / 16], s, i / 8);
            pass_on_p(rounded[SHARED_PAIRS ? 0 : i / 16], first + i);
        }
        if constexpr (SHARED_PAIRS) __syncwarp();  // this warp's P is there
        multiply_over_head<element>(s, values, dout + Tile::bytes(first) + lanes.cols_first);  // dP
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            Pairs& a = rounded[SHARED_PAIRS ? 0 : i / 16];
            if constexpr (SHARED_PAIRS) {
                const SharedAddress own = shared_address(p) + PairTile::bytes(lanes.row) + pair_rows_first;
#pragma unroll
                for (int m = 0; m < OWN_TILES; ++m)
                    ldmatrix(a[m], PairTile::advance(own, (first + i) / 8) + PairTile::bytes(16 * m));
            }
            differentiate(s, a, first, i);
            as_operand<element>(a, s, i / 8);
            pass_on_ds(a, first + i);
        }
    }

    /// dP becomes dS, in 16 queries of a chunk from `i` on, from rounded P.
    __device__ __forceinline__ void differentiate(Products& dp, const Pairs& rounded, int first, int i) const
    {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float4 both = sums[(first + i + 8 * n) / 2 + lanes.lane % 4];
#pragma unroll
            for (int m = 0; m < OWN_TILES; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float2 weights = unpack_pair<element>(rounded[m][2 * n + half]);
                    float* const pair = dp[m][i / 8 + n] + 2 * half;
                    pair[0] = weights.x * (pair[0] - both.y);
                    pair[1] = weights.y * (pair[1] - both.w);
                }
        }
    }
};

/// gradients += P or dS times all rows of a tile, for a warp's part of the keys, from `row` on, and of the columns.
/// `pairs_lane`, `tile_lane`: the lane's rows of the two tiles, for ldmatrix.
__device__ __forceinline__ void multiply_pairs(Gradients& gradients, const unsigned char* pairs, SharedAddress tile,
                                               int row, int pairs_lane, int tile_lane)
{
    const SharedAddress own = shared_address(pairs) + PairTile::bytes(row) + pairs_lane;
#pragma unroll
    for (int first = 0; first < BLOCK_M; first += 16) {
        uint32_t a[GRADIENT_TILES][4];
#pragma unroll
        for (int m = 0; m < GRADIENT_TILES; ++m)
            ldmatrix(a[m], PairTile::advance(own, first / 8) + PairTile::bytes(16 * m));
        multiply_over_rows<element, Tile, WARPS_D>(gradients, a, tile + Tile::bytes(first) + tile_lane);
    }
}

/// A warp's share of dQ of a tile of queries, over all keys of the block.
struct QueryShare {
    int row;   // its first query in the tile
    int part;  // of the columns
    int columns_lane;
    int ds_column;

    __device__ __forceinline__ QueryShare(int warp, int rows_first)
        : row(warp / DQ_WARPS_D * 16 * DQ_M_TILES), part(warp % DQ_WARPS_D),
          columns_lane(opaque(Tile::advance(rows_first, 2 * part))),
          ds_column(PairTile::advance(ldmatrix_cols_first<PairTile>(), row / 8))
    {
    }

    /// Where its sums are.
    __device__ __forceinline__ float* sums(float* accumulator, const Operands& in, int batch, int head, int query) const
    {
        return accumulator + in.number(batch, head, query + row) * HS + part * 256;
    }

    __device__ __forceinline__ void add(float* sums, const unsigned char* ds, const unsigned char* k_tile) const
    {
#pragma unroll 1
        for (int from = 0; from < DQ_D_TILES; from += DQ_D_TILES / DQ_PARTS) {
            float dq[DQ_M_TILES][DQ_D_TILES / DQ_PARTS][4] = {};
#pragma unroll
            for (int own = 0; own < BLOCK_N; own += 16) {
                uint32_t a[DQ_M_TILES][4];
#pragma unroll
                for (int m = 0; m < DQ_M_TILES; ++m)
                    ldmatrix_transposed(
                        a[m], shared_address(ds) + PairTile::advance(ds_column, 2 * m) + PairTile::bytes(own));
                multiply_over_rows<element, Tile, DQ_WARPS_D>(
                    dq, a, shared_address(k_tile) + Tile::bytes(own) + columns_lane, from);
            }
#pragma unroll
            for (int m = 0; m < DQ_M_TILES; ++m)
#pragma unroll
                for (int n = 0; n < DQ_D_TILES / DQ_PARTS; ++n)
                    FragmentSums::add(sums + m * 16 * HS + nth_piece<DQ_WARPS_D>(from + n) * 128, dq[m][n]);
        }
    }
};

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
    const KeyMemory memory(smem);

    const int head_begin = head_kv * (in.NH / in.NH_kv);  // of those that share the keys
    const int head_end = head_begin + in.NH / in.NH_kv;

    const Scores<CAUSAL> scores(in.T, in.T_kv, in.scale);
    // Tiles of queries that see a key of this block. In the first of them some pairs are hidden; in all of them if some
    // of the block's keys do not exist.
    const int query_begin = scores.first_query(key) / BLOCK_M * BLOCK_M;
    const int query_end = (in.T + BLOCK_M - 1) / BLOCK_M * BLOCK_M;
    const int masked_end = key + BLOCK_N > in.T_kv ? query_end : scores.first_query(key + BLOCK_N - 1);
    const int query_first = REVERSE ? query_end - BLOCK_M : query_begin;
    const int query_last = REVERSE ? query_begin : query_end - BLOCK_M;

    const TileCopier<Tile, THREADS> copier;
    const QueryStream queries = {in, memory, batch, head_end, query_first, query_last, copier};
    copy_rows<BLOCK_N>(copier, memory.k, in.k, batch, head_kv, key, in.T_kv, allows_vectors<8>(in.k));
    copy_rows<BLOCK_N>(copier, memory.v, in.v, batch, head_kv, key, in.T_kv, allows_vectors<8>(in.v));
    commit_copies();
    if (query_begin < query_end) queries.copy(head_begin, query_first, 0);
    commit_copies();

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const KeyLanes lanes(warp, lane);
    OwnRows<Tile, OWN_TILES, K_IN_REGISTERS> keys(shared_address(memory.k) + Tile::bytes(lanes.row) + lanes.rows_first);
    OwnRows<Tile, OWN_TILES, V_IN_REGISTERS> values(shared_address(memory.v) + Tile::bytes(lanes.row) + lanes.rows_first);
    if constexpr (V_IN_REGISTERS) {
        wait_for_copies<1>();
        __syncthreads();  // K and V are there
        keys.keep();
        values.keep();
    }
    const bool has_dv = warp < WARPS / 2;  // SPLIT_GRADIENTS: the other warps have dK
    const int gradient_row = warp % (WARPS / 2) / WARPS_D * 16 * GRADIENT_TILES;  // its part's first key
    Gradients dk_part = {};
    Gradients dv_part = {};  // SPLIT_GRADIENTS: the warp's part, whichever it has
    const PairWriter writer(lanes.row, lane);
    const int pair_rows_first = SHARED_PAIRS ? ldmatrix_rows_first<PairTile>() : 0;
    const int columns_lane = SHARED_PAIRS ? opaque(Tile::advance(lanes.rows_first, 2 * lanes.part)) : 0;
    const QueryShare share(warp, lanes.rows_first);

    int stage = 0;
    const auto attend = [&](int head_at, int query_at, auto masked) {
        // Registers are what there is least of: from here on the compiler cannot tell that these follow from those of
        // the step before, and so computes addresses when they are used and does not keep them.
        const int head = opaque(head_at);
        const int query = opaque(query_at);
        wait_for_copies<0>();
        __syncthreads();  // the step's tiles are there, and those of the step before have been read
        if constexpr (STAGES == 2) queries.copy_after(head, query, stage ^ 1);
        const SharedAddress q_tile = shared_address(memory.q + stage * Tile::bytes(BLOCK_M));
        const SharedAddress dout_tile = shared_address(memory.dout + stage * Tile::bytes(BLOCK_M));
        const float4* const sums = reinterpret_cast<const float4*>(memory.sums + stage * BLOCK_M * sizeof(RowSums));
        const KeyStep<Gradients> step = {scores, keys, values, lanes, writer, pair_rows_first, dk_part, dv_part, q_tile, dout_tile,
                              sums, memory.p(), memory.ds(stage)};
        constexpr int CHUNKS = BLOCK_M / CHUNK / WARPS_D;  // of the tile, this warp's
        constexpr bool OVERLAPPED = SCHEDULE == Schedule::OVERLAPPED;
        if constexpr (OVERLAPPED) {
            if (!masked) step.template overlapped<CHUNKS>();
        }
#pragma unroll
        for (int c = 0; (!OVERLAPPED || masked) && c < CHUNKS; ++c) {
            const int first = step.chunk(c, lanes.part);
            if (masked && query + first + CHUNK <= scores.first_query(key + lanes.row)) {
                step.pass_on_zeros(first);
                continue;
            }
            const auto hide = [&](Products& s) {
                if (masked) hide_queries<false>(s, scores, key + lanes.row + lane / 4, query + first, lane);
            };
            if constexpr (SCHEDULE == Schedule::IN_TURN)
                step.in_turn(first, hide);
            else
                step.together(first, hide);
        }
        if constexpr (SHARED_PAIRS) {
            __syncthreads();  // P and dS are there
            if constexpr (SPLIT_GRADIENTS) {
                multiply_pairs(dv_part, has_dv ? step.p : step.ds, has_dv ? dout_tile : q_tile, gradient_row,
                               pair_rows_first, columns_lane);
            } else {
                multiply_pairs(dv_part, step.p, dout_tile, lanes.row, pair_rows_first, columns_lane);
                multiply_pairs(dk_part, step.ds, q_tile, lanes.row, pair_rows_first, columns_lane);
            }
            if constexpr (STAGES == 1) __syncthreads();  // Q and dO have been read
        } else if constexpr (!DQ_LATER && (ATOMIC || STAGES == 1)) {
            __syncthreads();  // dS is there, Q and dO have been read
        }
        if constexpr (STAGES == 1)
            queries.copy_after(head, query, 0);
        else
            stage ^= 1;
        share.add(share.sums(dq_accumulator, in, batch, head, query), step.ds, memory.k);
    };

#pragma unroll 1
    for (int head = head_begin; head < head_end; ++head) {
        int query = query_first;
        if constexpr (PEEL && REVERSE) {
#pragma unroll 1
            for (; query >= max(query_begin, masked_end); query -= BLOCK_M) attend(head, query, Known<false>());
#pragma unroll 1
            for (; query >= query_begin; query -= BLOCK_M) attend(head, query, Known<true>());
        } else if constexpr (PEEL) {
#pragma unroll 1
            for (; query < min(query_end, masked_end); query += BLOCK_M) attend(head, query, Known<true>());
#pragma unroll 1
            for (; query < query_end; query += BLOCK_M) attend(head, query, Known<false>());
        } else if constexpr (REVERSE) {
#pragma unroll 1
            for (; query >= query_begin; query -= BLOCK_M) attend(head, query, query < masked_end);
        } else {
#pragma unroll 1
            for (; query < query_end; query += BLOCK_M) attend(head, query, query < masked_end);
        }
    }

    wait_for_copies<0>();
    __syncthreads();  // K and V have been read; the gradients take their place
    bool finite;  // this thread's rows of them
    if constexpr (SPLIT_GRADIENTS) {
        finite = place_rows<element, Tile, WARPS_D>(has_dv ? memory.v : memory.k, gradient_row, dv_part,
                                                    has_dv ? 1.0f : in.scale, 2 * lanes.part);
    } else {
        finite = place_rows<element, Tile, WARPS_D>(memory.k, lanes.row, dk_part, in.scale, 2 * lanes.part);
        finite &= place_rows<element, Tile, WARPS_D>(memory.v, lanes.row, dv_part, 1.0f, 2 * lanes.part);
    }
    __syncthreads();
    const Place to = Place::of_block(heads);  // again: not held in registers all the while
    const int first = to.block * BLOCK_N;
    const int rows = in.T_kv - first;
    write_rows<element, Tile, BLOCK_N, THREADS>(matrix_of(dk, to.batch, to.head) + first * dk.stride[2], dk, rows, memory.k);
    write_rows<element, Tile, BLOCK_N, THREADS>(matrix_of(dv, to.batch, to.head) + first * dv.stride[2], dv, rows, memory.v);

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
    if (HEADS_AT_ONCE > 1 && Place::of_block(NH_kv).batch >= B) return;
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
