// autotune: backward/flash_mma: tiles on tensor cores (mma.sync), 16-bit operands, fp32 accumulation; scores recomputed transposed, so that P and dS feed the next products from registers
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: DQ_ACCUMULATE=atomic BLOCK_N=128 BLOCK_M=64 OWN_TILES=2 WARPS_D=1 SPLIT=columns CHUNK=32 SCHEDULE=together DQ_WARPS_M=2 STAGES=2 IN_REGISTERS=none MIN_BLOCKS=2 STMATRIX=False SWIZZLE=True REVERSE=True PEEL=True HEADS_AT_ONCE=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          d4d689071be2f80a

#include "common/attention/exact.cuh"
#include "common/attention/fragment_sums.cuh"
#include "common/attention/gradient_operands.cuh"
#include "common/attention/grid.cuh"
#include "common/attention/key_step.cuh"
#include "common/attention/pair_tiles.cuh"
#include "common/attention/query_share_mma.cuh"
#include "common/attention/query_step.cuh"
#include "common/attention/query_stream.cuh"
#include "common/attention/row_dots.cuh"
#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
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

constexpr int HS = 64;
constexpr int HS_TILE = 64;       // columns of a row in shared memory and of dQ's sums, those beyond HS zeros
constexpr int HS_V = 64;          // of V, O and their gradients
constexpr int HS_V_TILE = 64;
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
constexpr int DQ_WARPS_M = 2;      // ATOMIC: warps over the queries of dQ, the others over its columns
constexpr int DQ_PARTS = 1;        // in which a warp computes these columns, one after the other
constexpr int STAGES = 2;          // tiles of Q and of dO in shared memory, or of K and of V
constexpr bool K_IN_REGISTERS = false;  // or read from shared memory at every step; of dQ's blocks, Q
constexpr bool V_IN_REGISTERS = false;  // of dQ's blocks, dO
constexpr int MIN_BLOCKS = 2;      // a multiprocessor, asked of the register allocator
constexpr bool STMATRIX = false;     // writes P and dS
constexpr bool REVERSE = true;      // from the last step to the first
constexpr bool PEEL = true;         // steps with a mask have a loop of their own
constexpr int HEADS_AT_ONCE = 0;   // whose blocks follow one another in the grid; 0: all
constexpr bool MEND_APART = false;   // a kernel of its own computes again what is not finite of dK and dV
constexpr int ROW_THREADS = 256;   // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;       // of them a row, to compute its delta

constexpr int WARPS = BLOCK_N * WARPS_D / OWN_TILES / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int QUERY_ROWS = BLOCK_N * WARPS_D;  // queries a block that computes dQ
constexpr bool SHARED_PAIRS = WARPS_D > 1;     // P and dS change warps, by way of shared memory
constexpr PairRoute ROUTE = SHARED_PAIRS ? PairRoute::CHANGE_WARPS : ATOMIC ? PairRoute::DS_COPIED : PairRoute::STAY;
constexpr int PAIR_TILES = SHARED_PAIRS || DQ_LATER ? 2 : ATOMIC ? 1 : 0;
constexpr int GRADIENT_TILES = (SPLIT_GRADIENTS ? 2 : 1) * OWN_TILES;  // of 16 keys in a warp's parts of dK and dV
constexpr int NEXT_TILE = REVERSE ? -BLOCK_M : BLOCK_M;                // rows from one step's to the next one's
constexpr float LARGEST_LSE = 16384.0f;  // in base 2: its rounding is a rounding of an element

using Tile = SharedTile<HS_TILE, true, 2, HS>;
using ValueTile = SharedTile<HS_V_TILE, true, 2, HS_V>;
[[maybe_unused]] constexpr int WIDTH = Tile::WIDTH;  // elements of a tensor's row that one access moves
using PairTile = SharedTile<BLOCK_M, true>;  // P or dS, transposed: keys by queries
using FirstOwnRows = OwnRows<Tile, OWN_TILES, K_IN_REGISTERS>;   // a warp's of K, or of Q
using SecondOwnRows = OwnRows<ValueTile, OWN_TILES, V_IN_REGISTERS>;  // of V, or of dO
using Gradients = float[GRADIENT_TILES][HS_TILE / WARPS_D / 8][4];
using ValueGradients = float[GRADIENT_TILES][HS_V_TILE / WARPS_D / 8][4];
using Operands = GradientOperands<element, HS, CAUSAL, HS_V>;
using Queries = QueryStream<Tile, BLOCK_M, NEXT_TILE, THREADS, Operands, ValueTile>;
using Lanes = KeyLanes<Tile, OWN_TILES, WARPS_D, ValueTile>;
using Writer = PairWriter<PairTile, STMATRIX>;
using Step = KeyStep<element, CHUNK, WARPS_D, ROUTE, CAUSAL, Tile, PairTile, STMATRIX, OWN_TILES, K_IN_REGISTERS, V_IN_REGISTERS,
                     Gradients, ValueTile, ValueGradients>;
using Share = QueryShare<element, Tile, PairTile, BLOCK_N, DQ_WARPS_M, WARPS / DQ_WARPS_M, DQ_PARTS>;
using Place = BlockPlace<HEADS_AT_ONCE>;

/// delta and the log-sum-exp in base 2 of all queries, ROW_LANES threads a row; clears dQ, which blocks of keys add to.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_delta(View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
          float* __restrict__ row_sums, float* __restrict__ dq_accumulator, int NH, int T, int T_kv, int rows,
          float scale)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>(NH, rows);
    const bool exists = place.t < T;
    const float log_sum = exists ? lse[place.number(NH, T)] : minus_infinity();
    const bool vectors = allows_vectors<ValueTile::WIDTH>(out) && allows_vectors<ValueTile::WIDTH>(dout);
    float delta = 0.0f;
    if (exists)
        delta = vectors ? dot_of_lane<HS_V, ValueTile::WIDTH, ROW_LANES>(out, dout, place, true)
                        : dot_of_lane<HS_V, ValueTile::WIDTH, ROW_LANES>(out, dout, place, false);
    delta = reduce_lanes<Sum, 1, ROW_LANES>(delta);
    if (place.t >= rows) return;
    if (threadIdx.x % ROW_LANES == 0) {
        const bool sees_keys = log_sum != minus_infinity();
        reinterpret_cast<RowSums*>(row_sums)[place.number(NH, rows)] =
            RowSums{Scores<CAUSAL>(T, T_kv, scale).origin_of(trusted_log_sum(log_sum, LARGEST_LSE)), sees_keys ? delta : 0.0f};
    }
    float4* const sums = reinterpret_cast<float4*>(dq_accumulator + place.number(NH, rows) * HS_TILE);
#pragma unroll
    for (int c = threadIdx.x % ROW_LANES; c < HS_TILE / 4; c += ROW_LANES) sums[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
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
        : k(smem), v(k + Tile::bytes(BLOCK_N)), q(v + ValueTile::bytes(BLOCK_N)), dout(q + STAGES * Tile::bytes(BLOCK_M)),
          pairs(dout + STAGES * ValueTile::bytes(BLOCK_M)), sums(pairs + PAIR_TILES * PairTile::bytes(BLOCK_N))
    {
    }

    __device__ __forceinline__ unsigned char* p() const { return pairs; }
    __device__ __forceinline__ unsigned char* ds(int stage) const
    {
        return pairs + (SHARED_PAIRS ? 1 : DQ_LATER ? stage : 0) * PairTile::bytes(BLOCK_N);
    }
};

/// dK and dV of a block's BLOCK_N keys, summed over all queries that see them and over the query heads that share them;
/// ATOMIC: adds their share of dQ. `heads`: of the grid.
__device__ __forceinline__ void key_gradients_of(const Operands& in, const View<element, 4>& dk, const View<element, 4>& dv,
                                                 float* dq_accumulator, int heads, unsigned char* smem)
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
    const Queries queries = {in, memory.q, memory.dout, memory.sums, batch, head_end, query_first, query_last, copier};
    copy_rows<BLOCK_N>(copier, memory.k, in.k, batch, head_kv, key, in.T_kv, allows_vectors<Tile::WIDTH>(in.k));
    copy_rows<BLOCK_N>(queries.value_copier, memory.v, in.v, batch, head_kv, key, in.T_kv, allows_vectors<ValueTile::WIDTH>(in.v));
    commit_copies();
    if (query_begin < query_end) queries.copy(head_begin, query_first, 0);
    commit_copies();

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const Lanes lanes(warp, lane);
    FirstOwnRows keys(shared_address(memory.k) + Tile::bytes(lanes.row) + lanes.rows_first);
    SecondOwnRows values(shared_address(memory.v) + ValueTile::bytes(lanes.row) + lanes.value_rows_first);
    if constexpr (V_IN_REGISTERS) {
        wait_for_copies<1>();
        __syncthreads();  // K and V are there
        keys.keep();
        values.keep();
    }
    const bool has_dv = warp < WARPS / 2;  // SPLIT_GRADIENTS: the other warps have dK
    const int gradient_row = warp % (WARPS / 2) / WARPS_D * 16 * GRADIENT_TILES;  // its part's first key
    Gradients dk_part = {};
    ValueGradients dv_part = {};  // SPLIT_GRADIENTS: the warp's part, whichever it has
    const Writer writer(lanes.row, lane);
    const int pairs_lane = SHARED_PAIRS ? ldmatrix_rows_first<PairTile>() : 0;
    const int columns_lane = SHARED_PAIRS ? opaque(Tile::advance(lanes.rows_first, 2 * lanes.part)) : 0;
    const int value_columns_lane = !SHARED_PAIRS || ValueTile::ROW_BYTES == Tile::ROW_BYTES
                                       ? columns_lane
                                       : opaque(ValueTile::advance(lanes.value_rows_first, 2 * lanes.part));
    const Share share(warp, lanes.rows_first);
    float* dq_sums_before = nullptr;  // DQ_LATER: of the step before

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
        const SharedAddress dout_tile = shared_address(memory.dout + stage * ValueTile::bytes(BLOCK_M));
        const float4* const sums = reinterpret_cast<const float4*>(memory.sums + stage * BLOCK_M * sizeof(RowSums));
        if constexpr (DQ_LATER) {
            if (dq_sums_before != nullptr) share.add(dq_sums_before, memory.ds(stage ^ 1), memory.k);
        }
        const Step step = {scores,  keys,   values,    lanes, writer,     pairs_lane,      dk_part,
                           dv_part, q_tile, dout_tile, sums,  memory.p(), memory.ds(stage)};
        step.template run<SCHEDULE>(key + lanes.row, query, masked);
        if constexpr (SHARED_PAIRS) {
            __syncthreads();  // P and dS are there
            if constexpr (SPLIT_GRADIENTS) {
                multiply_pairs<element, Tile, PairTile, WARPS_D>(dv_part, has_dv ? step.p : step.ds,
                                                                 has_dv ? dout_tile : q_tile, gradient_row, pairs_lane,
                                                                 columns_lane);
            } else {
                multiply_pairs<element, ValueTile, PairTile, WARPS_D>(dv_part, step.p, dout_tile, lanes.row, pairs_lane,
                                                                      value_columns_lane);
                multiply_pairs<element, Tile, PairTile, WARPS_D>(dk_part, step.ds, q_tile, lanes.row, pairs_lane, columns_lane);
            }
            if constexpr (STAGES == 1) __syncthreads();  // Q and dO have been read
        } else if constexpr (!DQ_LATER && (ATOMIC || STAGES == 1)) {
            __syncthreads();  // dS is there, Q and dO have been read
        }
        if constexpr (STAGES == 1)
            queries.copy_after(head, query, 0);
        else
            stage ^= 1;
        if constexpr (DQ_LATER)
            dq_sums_before = share.sums(dq_accumulator, in, batch, head, query);
        else if constexpr (ATOMIC)
            share.add(share.sums(dq_accumulator, in, batch, head, query), step.ds, memory.k);
    };

#pragma unroll 1
    for (int head = head_begin; head < head_end; ++head)
        for_each_tile<PEEL, REVERSE, BLOCK_M>(query_first, query_begin, query_end, masked_end, attend, head);

    wait_for_copies<0>();
    if constexpr (DQ_LATER) {
        __syncthreads();  // the last dS is there
        if (dq_sums_before != nullptr) share.add(dq_sums_before, memory.ds(stage ^ 1), memory.k);
    }
    __syncthreads();  // K and V have been read; the gradients take their place
    bool finite;      // this thread's rows of them
    if constexpr (SPLIT_GRADIENTS) {
        finite = place_rows<element, Tile, WARPS_D>(has_dv ? memory.v : memory.k, gradient_row, dv_part,
                                                    has_dv ? 1.0f : in.scale, 2 * lanes.part);
    } else {
        finite = place_rows<element, Tile, WARPS_D>(memory.k, lanes.row, dk_part, in.scale, 2 * lanes.part);
        finite &= place_rows<element, ValueTile, WARPS_D>(memory.v, lanes.row, dv_part, 1.0f, 2 * lanes.part);
    }
    __syncthreads();
    const Place to = Place::of_block(heads);  // again: not held in registers all the while
    const int first = to.block * BLOCK_N;
    const int rows = in.T_kv - first;
    write_rows<element, Tile, BLOCK_N, THREADS>(matrix_of(dk, to.batch, to.head) + first * dk.stride[2], dk, rows, memory.k);
    write_rows<element, ValueTile, BLOCK_N, THREADS>(matrix_of(dv, to.batch, to.head) + first * dv.stride[2], dv, rows, memory.v);

    if (!__syncthreads_or(!finite)) return;
    if constexpr (MEND_APART) {  // in the blocks whose first element says so
        if (threadIdx.x == 0) matrix_of(dk, to.batch, to.head)[first * dk.stride[2]] = from_float<element>(not_a_number());
    } else {
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
}

/// dQ of QUERY_ROWS queries from `query` on, summed over all keys they see; not ATOMIC.
__device__ __forceinline__ void query_gradient_of(const Operands& in, const View<element, 4>& dq, int batch, int head,
                                                  int query, unsigned char* smem)
{
    unsigned char* const q_tile = smem;
    unsigned char* const dout_tile = q_tile + Tile::bytes(QUERY_ROWS);
    unsigned char* const k_tiles = dout_tile + ValueTile::bytes(QUERY_ROWS);
    unsigned char* const v_tiles = k_tiles + STAGES * Tile::bytes(BLOCK_M);

    const int head_kv = head / (in.NH / in.NH_kv);

    const Scores<CAUSAL> scores(in.T, in.T_kv, in.scale);
    // Tiles of keys that a query of this block sees; those that every query sees completely come first.
    const int tiles = (scores.keys_seen(min(query + QUERY_ROWS, in.T) - 1) + BLOCK_M - 1) / BLOCK_M;
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

    copy_rows<QUERY_ROWS>(copier, q_tile, in.q, batch, head, query, in.T, allows_vectors<Tile::WIDTH>(in.q));
    copy_rows<QUERY_ROWS>(value_copier, dout_tile, in.dout, batch, head, query, in.T, allows_vectors<ValueTile::WIDTH>(in.dout));
    commit_copies();
    copy(0, 0);

    const int lane = threadIdx.x % 32;
    const int warp_row = threadIdx.x / 32 * 16 * OWN_TILES;  // this warp's first query in the block
    const int rows_first = ldmatrix_rows_first<Tile>();      // this lane's row in a tile, for ldmatrix
    const int cols_first = ldmatrix_cols_first<Tile>();
    FirstOwnRows queries(shared_address(q_tile) + Tile::bytes(warp_row) + rows_first);
    constexpr bool ALIKE = ValueTile::ROW_BYTES == Tile::ROW_BYTES;
    const int value_cols_first = ALIKE ? cols_first : ldmatrix_cols_first<ValueTile>();
    SecondOwnRows douts(shared_address(dout_tile) + ValueTile::bytes(warp_row) +
                        (ALIKE ? rows_first : ldmatrix_rows_first<ValueTile>()));
    if constexpr (V_IN_REGISTERS) {
        wait_for_copies<1>();
        __syncthreads();  // Q and dO are there
        queries.keep();
        douts.keep();
    }
    RowSums sums[2 * OWN_TILES];
#pragma unroll
    for (int r = 0; r < 2 * OWN_TILES; ++r)
        sums[r] = in.row_sums[in.number(batch, head, query + warp_row + 8 * r + lane / 4)];
    float dq_rows[OWN_TILES][HS_TILE / 8][4] = {};

    int stage = 0;
    const auto attend = [&](int tile, auto masked) {
        wait_for_copies<0>();
        __syncthreads();  // the step's tiles are there, and those of the step before have been read
        if constexpr (STAGES == 2) copy(tile + 1, stage ^ 1);
        const QueryStep<element, CHUNK, BLOCK_M, CAUSAL, Tile, OWN_TILES, K_IN_REGISTERS, V_IN_REGISTERS, ValueTile> step = {
            scores,     queries,    douts,
            sums,       dq_rows,    rows_first,
            cols_first, shared_address(k_tiles + stage * Tile::bytes(BLOCK_M)), shared_address(v_tiles + stage * ValueTile::bytes(BLOCK_M)),
            value_cols_first};
        step.template run<SCHEDULE == Schedule::OVERLAPPED>(query + warp_row, first_key(tile), masked);
        if constexpr (STAGES == 1) {
            __syncthreads();  // K and V have been read
            copy(tile + 1, 0);
        } else {
            stage ^= 1;
        }
    };
    for_each_step<PEEL, REVERSE>(tiles, REVERSE ? tiles - full_tiles : full_tiles, attend);

    wait_for_copies<0>();
    __syncthreads();  // Q has been read; the gradient takes its place
    const bool finite = place_rows<element, Tile, 1>(q_tile, warp_row, dq_rows, in.scale, 0);
    __syncthreads();
    write_rows<element, Tile, QUERY_ROWS, THREADS>(matrix_of(dq, batch, head) + query * dq.stride[2], dq, in.T - query,
                                                   q_tile);

    if (!__syncthreads_or(!finite)) return;
    const auto exact = in.exact();
#pragma unroll 1
    for (int own = query + opaque(threadIdx.x) / 32; own < min(query + QUERY_ROWS, in.T); own += WARPS)
        exact.mend_query(dq, batch, head, own);
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
    const RowPlace block = first_row_of_block<ROW_THREADS / 32>(NH, rows / 16 * (HS_TILE / 32));  // tiles, in place of rows
    const int tile = block.t + threadIdx.x / 32;
    const int first = tile / (HS_TILE / 32) * 16;
    const int col = tile % (HS_TILE / 32) * 32;
    if (first >= T) return;
    const RowPlace place = {block.b, block.h, first};
    const float* const sums = dq_accumulator + place.number(NH, rows) * HS_TILE + col * 16;
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
    const bool vectors = allows_vectors<WIDTH>(dq);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        transpose_quad(pairs[half]);
        const RowPlace row = {place.b, place.h, first + 8 * half + lane / 4};
        if (row.t >= T || (HS < HS_TILE && col + lane % 4 * 8 >= HS)) continue;
        write_chunk<Tile>(row_of(dq, row), dq.stride[3], col + lane % 4 * 8, pairs[half], vectors);
    }

    if (__all_sync(ALL_LANES, zero[0] == 0.0f && zero[1] == 0.0f)) return;
    __syncwarp();  // the tile is written
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {
        read_only(q), read_only(k), read_only(v), read_only(out), read_only(dout), lse, NH, NH / NH_kv,
        Scores<CAUSAL>(T, T_kv, scale)};
#pragma unroll 1
    for (int n = 0; n < min(16, T - first); ++n) {
        if (__all_sync(ALL_LANES, lane / 4 != n % 8 || (n < 8 ? zero[0] : zero[1]) == 0.0f)) continue;
        const double right = exact.query_column(place.b, place.h, first + n, col + lane);
        if (HS < HS_TILE && col + lane >= HS) continue;
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
