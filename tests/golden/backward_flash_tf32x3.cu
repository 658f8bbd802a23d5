// autotune: backward/flash_tf32x3: tiles on tensor cores in fp32, each product as three of tf32 (3xTF32); gradients transposed, so that P and dS feed their products from registers
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp32 causal=1 layout=bthd
// configuration: DQ_ACCUMULATE=in_place BLOCK_N=128 BLOCK_M=32 OWN_TILES=1 CHUNK=32 DQ_WARPS_M=2 STAGES=2 UNROLL=16 MIN_BLOCKS=1 SWIZZLE=True REVERSE=False PEEL=True HEAVY_FIRST=True GRID_MAP=x=head_batch,y=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          bdc6a1cf8dffd342

#include "common/attention/exact.cuh"
#include "common/attention/gradient_operands.cuh"
#include "common/attention/grid.cuh"
#include "common/attention/query_share_tf32.cuh"
#include "common/attention/row_dots.cuh"
#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/score_tiles.cuh"
#include "common/attention/steps.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/tile/tile_copy.cuh"
#include "common/view.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/tf32_products.cuh"

constexpr int HS = 64;
constexpr int HS_TILE = 64;     // columns of a row in shared memory, those beyond HS zeros
constexpr int HS_V = 64;        // of V, O and their gradients
constexpr int HS_V_TILE = 64;
constexpr bool CAUSAL = true;
constexpr int OWN_TILES = 1;      // tiles of 16 rows that a warp owns
constexpr bool IN_PLACE = true;   // blocks of keys add up dQ in its place; else it has blocks of its own
constexpr bool APART = false;       // dV has a kernel of its own, in which scores are computed another time
constexpr int MIN_BLOCKS = 1;     // a multiprocessor, asked of the register allocator
constexpr int BLOCK_N = 128;      // keys a block that computes dK and dV, queries a block that computes dQ
constexpr int BLOCK_M = 32;       // queries a step, or keys
constexpr int CHUNK = 32;         // of them a warp works on at once
constexpr int STAGES = 2;         // tiles of Q and of dO in shared memory, or of K and of V
constexpr int UNROLL = 16;        // steps of 8 columns of the head, in S and dP
constexpr bool REVERSE = false;     // from the last step to the first
constexpr bool PEEL = true;        // steps with a mask have a loop of their own
constexpr bool HEAVY_FIRST = true;  // blocks with the most work come first
constexpr int ROW_THREADS = 256;  // a block of the kernels that work row by row
constexpr int ROW_LANES = 16;      // of them a row

constexpr int WARPS = BLOCK_N / OWN_TILES / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int C_TILES = CHUNK / 8;  // tiles of 8 in a chunk
static_assert(BLOCK_M / 2 <= THREADS, "a copy of two queries' sums is a thread's");

using Tile = FloatTile<HS_TILE, true, HS>;
using ValueTile = FloatTile<HS_V_TILE, true, HS_V>;
constexpr bool ALIKE = ValueTile::ROW_BYTES == Tile::ROW_BYTES;  // lanes have the same places in both
using Products = float[OWN_TILES][C_TILES][4];  // S or dP: own rows by a chunk
using Gradients = TransposedGradients<HS_TILE, OWN_TILES>;
using ValueGradients = TransposedGradients<HS_V_TILE, OWN_TILES>;
using Operands = GradientOperands<float, HS, CAUSAL, HS_V>;
using Pairs = PairTile<BLOCK_M>;  // IN_PLACE: dS, transposed: keys by queries
constexpr int DQ_WARPS_M = 2;     // warps over the queries of dQ, the others over its columns
constexpr int DQ_WARPS_D = WARPS / DQ_WARPS_M;
constexpr int DQ_ROWS = BLOCK_M / DQ_WARPS_M;   // queries a warp
constexpr int DQ_TILES = IN_PLACE ? HS_TILE / DQ_WARPS_D / 16 : 1;  // tiles of 16 columns a warp, taken by turns where addresses allow it
constexpr int DQ_STEP = DQ_WARPS_D % 2 == 0 ? DQ_WARPS_D : 1;
using Share = QueryShare<Tile, Pairs, DQ_TILES, DQ_STEP, IN_PLACE ? DQ_ROWS / 8 : 2>;
using Place = SplitPlace<false, 0, false, 1>;

/// delta and the log-sum-exp of all queries, ROW_LANES threads a row; clears dQ, which blocks of keys add to.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_delta(View<const float, 4> out, View<const float, 4> dout, const float* __restrict__ lse,
          float* __restrict__ row_sums, View<float, 4> dq, int NH, int T, int rows)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>(NH, rows);
    const float delta = dot_of_rows<HS_V, ValueTile::WIDTH, ROW_LANES>(out, dout, place, place.t < T);
    if (place.t >= rows) return;
    if (threadIdx.x % ROW_LANES == 0) {
        const float log_sum = place.t < T ? lse[place.number(NH, T)] : minus_infinity();
        const bool sees_keys = log_sum != minus_infinity();
        float* const to = row_sums + 2 * place.number(NH, rows);
        to[0] = trusted_log_sum(log_sum);
        to[1] = sees_keys ? delta : 0.0f;
    }
    if (place.t >= T) return;
    constexpr int WIDTH = Tile::WIDTH;
    const bool vectors = allows_vectors<WIDTH>(dq);
    const float zeros[WIDTH] = {};
    for (int col = threadIdx.x % ROW_LANES * WIDTH; col < HS; col += ROW_LANES * WIDTH)
        store_row(row_of(dq, place), dq.stride[3], col, zeros, vectors);
}

/// dK and dV, or one of them, of BLOCK_N keys from `key` on, summed over all queries that see them and over the query heads
/// that share them; IN_PLACE: with dK their share of dQ is added.
template <bool HAS_DK, bool HAS_DV>
__device__ __forceinline__ void key_gradients_of(const Operands& in, const View<float, 4>& dk,
                                                 const View<float, 4>& dv, const View<float, 4>& dq, int batch,
                                                 int head_kv, int key, unsigned char* smem)
{
    unsigned char* const k_tile = smem;
    unsigned char* const v_tile = k_tile + Tile::bytes(BLOCK_N);
    unsigned char* const q_tiles = v_tile + ValueTile::bytes(BLOCK_N);
    unsigned char* const dout_tiles = q_tiles + STAGES * Tile::bytes(BLOCK_M);
    unsigned char* const ds_tile = dout_tiles + STAGES * ValueTile::bytes(BLOCK_M);
    unsigned char* const sums_tiles = ds_tile + (IN_PLACE ? Pairs::bytes(BLOCK_N) : 0);

    const int heads = in.NH / in.NH_kv;  // that share the keys
    const int head_begin = head_kv * heads;

    const Scores<CAUSAL> scores(in.T, in.T_kv, in.scale);
    // Tiles of queries that see a key of this block. In the first of them some pairs are hidden; in all of them if some
    // of the block's keys do not exist.
    const int query_begin = scores.first_query(key) / BLOCK_M * BLOCK_M;
    const int tiles = query_begin < in.T ? (in.T - query_begin + BLOCK_M - 1) / BLOCK_M : 0;
    const int query_full = scores.first_query(key + BLOCK_N - 1);  // from here on all keys are seen
    const int masked_tiles =
        key + BLOCK_N > in.T_kv ? tiles : min(tiles, (query_full - query_begin + BLOCK_M - 1) / BLOCK_M);
    const auto first_query = [&](int tile) { return query_begin + (REVERSE ? tiles - 1 - tile : tile) * BLOCK_M; };

    const TileCopier<Tile, THREADS> copier;
    const TileCopier<ValueTile, THREADS> value_copier = copier_beside<ValueTile>(copier);
    const bool vectors_q = allows_vectors<Tile::WIDTH>(in.q);
    const bool vectors_dout = allows_vectors<ValueTile::WIDTH>(in.dout);
    const auto copy = [&](int head, int tile, int stage) {
        if (head < head_begin + heads) {
            const int query = first_query(tile);
            const int offset = stage * Tile::bytes(BLOCK_M);
            const int value_offset = stage * ValueTile::bytes(BLOCK_M);
            const int b = opaque(batch);
            copy_rows<BLOCK_M>(copier, q_tiles + offset, in.q, b, head, query, in.T, vectors_q);
            copy_rows<BLOCK_M>(value_copier, dout_tiles + value_offset, in.dout, b, head, query, in.T, vectors_dout);
            const SharedAddress sums = shared_address(sums_tiles + stage * BLOCK_M * sizeof(RowSums));
            const int pair = threadIdx.x;  // of queries, whose sums are one copy
            if (pair < BLOCK_M / 2) copy_async(sums + 16 * pair, in.sums_of(b, head, query + 2 * pair), true);
        }
        commit_copies();
    };
    const auto copy_after = [&](int head, int tile, int stage) {
        const bool last = tile + 1 == tiles;
        copy(last ? head + 1 : head, last ? 0 : tile + 1, stage);
    };

    copy_rows<BLOCK_N>(copier, k_tile, in.k, batch, head_kv, key, in.T_kv, allows_vectors<Tile::WIDTH>(in.k));
    if constexpr (HAS_DK)
        copy_rows<BLOCK_N>(value_copier, v_tile, in.v, batch, head_kv, key, in.T_kv, allows_vectors<ValueTile::WIDTH>(in.v));
    commit_copies();
    if (tiles > 0) copy(head_begin, 0, 0);

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp * 16 * OWN_TILES;                                // this warp's first key in the block
    const int own_rows = Tile::bytes(warp_row) + ldmatrix_rows_first<Tile>();  // this lane's in K and V, for ldmatrix
    const int cols_first = ldmatrix_cols_first<Tile>();                        // and in Q and dO
    const int value_rows = ALIKE ? own_rows : ValueTile::bytes(warp_row) + ldmatrix_rows_first<ValueTile>();
    const int value_cols_first = ALIKE ? cols_first : ldmatrix_cols_first<ValueTile>();
    const auto pairs = ColumnPairs<Tile>::in_order();
    const auto value_pairs = ALIKE ? ColumnPairs<ValueTile>{pairs.first, pairs.second} : ColumnPairs<ValueTile>::in_order();
    Gradients dk_rows = {};
    ValueGradients dv_rows = {};

    // Writes dS of a chunk from query `first` of the tile on.
    const int place = IN_PLACE ? Pairs::place_of_lane() : 0;
    const auto write_pairs = [&](const Products& ds, int first) {
#pragma unroll
        for (int m = 0; m < OWN_TILES; ++m)
            Pairs::write(ds_tile + Pairs::bytes(warp_row + 16 * m), place, ds[m], first / 8);
    };

    // dQ of the tile: this warp's queries and columns, the block's first `keys` keys. What it needs is computed at each
    // step: registers are scarcer than instructions.
    const auto add_dq = [&](int head, int query, auto keys) {
        const unsigned thread = opaque(threadIdx.x);
        const int dq_row = thread / 32 / DQ_WARPS_D * DQ_ROWS;
        const int dq_col = thread / 32 % DQ_WARPS_D * (DQ_STEP == 1 ? 16 * DQ_TILES : 16);
        const Share share(thread, dq_row, dq_col);
        Share::Sums sum = {};
        Share::Sums rest = {};
#pragma unroll 1
        for (int own = 0; own < keys; own += 32)
#pragma unroll
            for (int i = 0; i < 32; i += 16)
                share.multiply(sum, rest, ds_tile + Pairs::bytes(own + i), k_tile + Tile::bytes(own + i));
        add_tiles(sum, rest);
        float* const rows = matrix_of(dq, opaque(batch), head) + (query + dq_row) * dq.stride[2];
        Share::add(rows + dq_col * dq.stride[3], dq, in.T - query - dq_row, HS - dq_col, sum, in.scale);
    };

    int stage = 0;
    const auto attend = [&](int head, int tile, auto masked) {
        const int query = first_query(tile);
        wait_for_copies<0>();
        __syncthreads();  // the step's tiles are there, and those of the step before have been read
        if constexpr (STAGES == 2) copy_after(head, tile, stage ^ 1);
        const unsigned char* const q_tile = q_tiles + stage * Tile::bytes(BLOCK_M);
        const unsigned char* const dout_tile = dout_tiles + stage * ValueTile::bytes(BLOCK_M);
        const float4* const sums = reinterpret_cast<const float4*>(sums_tiles + stage * BLOCK_M * sizeof(RowSums));
#pragma unroll 1
        for (int first = 0; first < BLOCK_M; first += CHUNK) {
            if (masked && query + first + CHUNK <= scores.first_query(key + warp_row)) {  // none sees a key of the warp
                if constexpr (IN_PLACE && HAS_DK) {
                    const Products zeros = {};
                    write_pairs(zeros, first);
                }
                continue;
            }
            Products s;
            [[maybe_unused]] Products ds;
            multiply_head_tf32<Tile, UNROLL>(s, shared_address(k_tile), own_rows,
                                             shared_address(q_tile) + Tile::bytes(first), cols_first);
            if constexpr (HAS_DK)
                multiply_head_tf32<ValueTile, UNROLL>(ds, shared_address(v_tile), value_rows,
                                                      shared_address(dout_tile) + ValueTile::bytes(first), value_cols_first);
            if (masked) hide_queries<true>(s, scores, opaque(key + warp_row + lane / 4), query + first, lane);
            if constexpr (HAS_DK)
                weigh_columns<true>(s, ds, scores, sums, first, lane);
            else
                weigh_columns<true>(s, scores, sums, first, lane);
            if constexpr (IN_PLACE && HAS_DK) write_pairs(ds, first);
            if constexpr (HAS_DV)
                multiply_rows_tf32(dv_rows, s, dout_tile + ValueTile::bytes(first), value_pairs);  // dV += P^T dO
            if constexpr (HAS_DK) multiply_rows_tf32(dk_rows, ds, q_tile + Tile::bytes(first), pairs);  // dK += dS^T Q
        }
        if constexpr ((IN_PLACE && HAS_DK) || STAGES == 1) __syncthreads();  // dS is there, Q and dO have been read
        if constexpr (STAGES == 1)
            copy_after(head, tile, 0);
        else
            stage ^= 1;
        if constexpr (IN_PLACE && HAS_DK)
            add_dq(head, query, masked ? min(BLOCK_N, scores.keys_seen(query + BLOCK_M - 1) - key) : BLOCK_N);
    };

#pragma unroll 1
    for (int head = head_begin; head < head_begin + heads; ++head) {
        for_each_step<PEEL, !REVERSE>(tiles, REVERSE ? tiles - masked_tiles : masked_tiles, attend, head);
    }

    wait_for_copies<0>();
    const int own = key + warp_row;
    bool finite = true;
    if constexpr (HAS_DK)
        finite = write_transposed_rows<HS>(matrix_of(dk, batch, head_kv) + own * dk.stride[2], dk, in.T_kv - own, dk_rows,
                                           in.scale);
    if constexpr (HAS_DV)
        finite &= write_transposed_rows<HS_V>(matrix_of(dv, batch, head_kv) + own * dv.stride[2], dv, in.T_kv - own,
                                              dv_rows, 1.0f);

    if (!__syncthreads_or(!finite)) return;
    const auto exact = in.exact();
#pragma unroll 1
    for (int row = key + opaque(threadIdx.x) / 32; row < min(key + BLOCK_N, in.T_kv); row += WARPS) {
        if constexpr (HAS_DK) exact.mend_key<true>(dk, batch, head_kv, row);
        if constexpr (HAS_DV) exact.mend_key<false>(dv, batch, head_kv, row);
    }
}

/// dQ of BLOCK_N queries from `query` on, summed over all keys they see.
__device__ __forceinline__ void query_gradient_of(const Operands& in, const View<float, 4>& dq, int batch, int head,
                                                  int query, unsigned char* smem)
{
    unsigned char* const q_tile = smem;
    unsigned char* const dout_tile = q_tile + Tile::bytes(BLOCK_N);
    unsigned char* const k_tiles = dout_tile + ValueTile::bytes(BLOCK_N);
    unsigned char* const v_tiles = k_tiles + STAGES * Tile::bytes(BLOCK_M);

    const int head_kv = head / (in.NH / in.NH_kv);

    const Scores<CAUSAL> scores(in.T, in.T_kv, in.scale);
    // Tiles of keys that a query of this block sees; those that every query sees completely come first.
    const int tiles = (scores.keys_seen(min(query + BLOCK_N, in.T) - 1) + BLOCK_M - 1) / BLOCK_M;
    const int full_tiles = scores.keys_seen(query) / BLOCK_M;
    const auto first_key = [&](int tile) { return (REVERSE ? tiles - 1 - tile : tile) * BLOCK_M; };

    const TileCopier<Tile, THREADS> copier;
    const TileCopier<ValueTile, THREADS> value_copier = copier_beside<ValueTile>(copier);
    const bool vectors_k = allows_vectors<Tile::WIDTH>(in.k);
    const bool vectors_v = allows_vectors<ValueTile::WIDTH>(in.v);
    const auto copy = [&](int tile, int stage) {
        if (tile < tiles) {
            const int key = first_key(tile);
            const int offset = stage * Tile::bytes(BLOCK_M);
            const int value_offset = stage * ValueTile::bytes(BLOCK_M);
            copy_rows<BLOCK_M>(copier, k_tiles + offset, in.k, batch, head_kv, key, in.T_kv, vectors_k);
            copy_rows<BLOCK_M>(value_copier, v_tiles + value_offset, in.v, batch, head_kv, key, in.T_kv, vectors_v);
        }
        commit_copies();
    };

    copy_rows<BLOCK_N>(copier, q_tile, in.q, batch, head, query, in.T, allows_vectors<Tile::WIDTH>(in.q));
    copy_rows<BLOCK_N>(value_copier, dout_tile, in.dout, batch, head, query, in.T, allows_vectors<ValueTile::WIDTH>(in.dout));
    commit_copies();
    copy(0, 0);

    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x / 32 * 16 * OWN_TILES;                    // this warp's first query in the block
    const int own_rows = Tile::bytes(warp_row) + ldmatrix_rows_first<Tile>();  // this lane's in Q and dO, for ldmatrix
    const int cols_first = ldmatrix_cols_first<Tile>();                        // and in K and V
    const int dout_rows = ALIKE ? own_rows : ValueTile::bytes(warp_row) + ldmatrix_rows_first<ValueTile>();
    const int value_cols_first = ALIKE ? cols_first : ldmatrix_cols_first<ValueTile>();
    const auto pairs = ColumnPairs<Tile>::in_order();
    RowSums sums[2 * OWN_TILES];
#pragma unroll
    for (int r = 0; r < 2 * OWN_TILES; ++r)
        sums[r] = *in.sums_of(batch, head, query + warp_row + 8 * r + lane / 4);
    Gradients dq_rows = {};

    int stage = 0;
    const auto attend = [&](int tile, auto masked) {
        const int key = first_key(tile);
        wait_for_copies<0>();
        __syncthreads();  // the step's tiles are there, and those of the step before have been read
        if constexpr (STAGES == 2) copy(tile + 1, stage ^ 1);
        const unsigned char* const k_tile = k_tiles + stage * Tile::bytes(BLOCK_M);
        const unsigned char* const v_tile = v_tiles + stage * ValueTile::bytes(BLOCK_M);
#pragma unroll 1
        for (int first = 0; first < BLOCK_M; first += CHUNK) {
            if (masked && key + first >= scores.keys_seen(query + warp_row + 16 * OWN_TILES - 1)) continue;
            Products s;
            Products ds;
            multiply_head_tf32<Tile, UNROLL>(s, shared_address(q_tile), own_rows,
                                             shared_address(k_tile) + Tile::bytes(first), cols_first);
            multiply_head_tf32<ValueTile, UNROLL>(ds, shared_address(dout_tile), dout_rows,
                                                  shared_address(v_tile) + ValueTile::bytes(first), value_cols_first);
            if (masked) hide_keys(s, scores, query + warp_row + lane / 4, key + first);
            weigh_rows<true>(s, ds, scores, sums);
            multiply_rows_tf32(dq_rows, ds, k_tile + Tile::bytes(first), pairs);  // dQ += dS K
        }
        if constexpr (STAGES == 1) {
            __syncthreads();  // K and V have been read
            copy(tile + 1, 0);
        } else {
            stage ^= 1;
        }
    };
    for_each_step<PEEL, REVERSE>(tiles, REVERSE ? tiles - full_tiles : full_tiles, attend);

    wait_for_copies<0>();
    const int own = query + warp_row;
    const bool finite =
        write_transposed_rows<HS>(matrix_of(dq, batch, head) + own * dq.stride[2], dq, in.T - own, dq_rows, in.scale);

    if (!__syncthreads_or(!finite)) return;
    const auto exact = in.exact();
#pragma unroll 1
    for (int row = query + opaque(threadIdx.x) / 32; row < min(query + BLOCK_N, in.T); row += WARPS)
        exact.mend_query(dq, batch, head, row);
}

/// dK and dV, and dQ added up; a block is BLOCK_N keys of a key head.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
key_gradients(View<float, 4> q, View<float, 4> k, View<float, 4> v, View<float, 4> out, View<float, 4> dout,
              const float* __restrict__ lse, const float* __restrict__ row_sums, View<float, 4> dk, View<float, 4> dv, View<float, 4> dq, int NH,
              int NH_kv, int T, int T_kv, int rows, float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const Operands in = {q,  k,     v, out,  dout, lse, reinterpret_cast<const RowSums*>(row_sums),
                         NH, NH_kv, T, T_kv, rows, scale};
    const Place place = Place::of_block<false>(NH_kv);
    const int last = static_cast<int>(gridDim.y) - 1;
    const int block = HEAVY_FIRST ? place.block : last - place.block;  // the first keys have the most queries
    key_gradients_of<true, !APART>(in, dk, dv, dq, place.batch, place.head, block * BLOCK_N, smem);
}

/// Looks at the finished dQ, a warp a row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
mend_query_gradient(View<const float, 4> q, View<const float, 4> k, View<const float, 4> v, View<const float, 4> out,
                    View<const float, 4> dout, const float* __restrict__ lse, View<float, 4> dq, int NH, int NH_kv,
                    int T, int T_kv, float scale)
{
    const RowPlace place = row_of_thread<ROW_THREADS, 32>(NH, T);
    const ExactGradients<HS, CAUSAL, float, HS_V> exact = {q,  k,          v, out, dout, lse, NH, NH / NH_kv,
                                                           Scores<CAUSAL>(T, T_kv, scale)};
    if (place.t < T) exact.mend_query(dq, place.b, place.h, place.t);
}

// buffer q: 3145728 fp32, input
// buffer k: 3145728 fp32, input
// buffer v: 3145728 fp32, input
// buffer out: 3145728 fp32, input
// buffer lse: 49152 fp32, input
// buffer dout: 3145728 fp32, input
// buffer dq: 3145728 fp32, output
// buffer dk: 3145728 fp32, output
// buffer dv: 3145728 fp32, output
// buffer row_sums: 98304 fp32, workspace
// launch row_delta grid=(3072, 1, 1) block=(256, 1, 1) smem=0 (out, dout, lse, row_sums, dq, NH, T, ROWS)
// launch key_gradients grid=(48, 8, 1) block=(256, 1, 1) smem=115200 (q, k, v, out, dout, lse, row_sums, dk, dv, dq, NH, NH_kv, T, T_kv, ROWS, scale)
// launch mend_query_gradient grid=(6144, 1, 1) block=(256, 1, 1) smem=0 (q, k, v, out, dout, lse, dq, NH, NH_kv, T, T_kv, scale)
