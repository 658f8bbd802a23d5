// autotune: forward/flash_mma: tiled attention with an online softmax on tensor cores (mma.sync), 16-bit operands, fp32 accumulation
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=128 WARPS=4 WARPS_D=1 BLOCK_N=64 STAGES=3 MIN_BLOCKS=2 Q_IN_REGISTERS=True SWIZZLE=True REVERSE=False OVERLAP=0 POLYNOMIAL=0 SPLIT=1 PACK_HEADS=False HEAVY_FIRST=True HEADS_AT_ONCE=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          3525d25af2981158

#include "common/attention/exact.cuh"
#include "common/attention/grid.cuh"
#include "common/attention/online_tiles.cuh"
#include "common/attention/row_exchange.cuh"
#include "common/attention/row_map.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/attention/steps.cuh"
#include "common/attention/work_order.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
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
constexpr int HS_TILE = 64;            // columns of a row in shared memory, those beyond HS zeros
constexpr int HS_V = 64;               // of V and O
constexpr int HS_V_TILE = 64;
constexpr int COLS = 64;               // of O that are computed
constexpr bool CAUSAL = true;
constexpr int WARPS = 4;
constexpr int WARPS_D = 1;              // that have the same rows: parts of the keys of S, of the columns of O
constexpr int MIN_BLOCKS = 2;           // a multiprocessor, asked of the register allocator
constexpr int BLOCK_M = 128;            // rows a block: queries, or pairs of a query and a head
constexpr int BLOCK_N = 64;             // keys a step
constexpr int STAGES = 3;               // tiles of K in shared memory
constexpr int V_STAGES = 3;             // and of V
constexpr bool Q_IN_REGISTERS = true;   // or read from shared memory at every step
constexpr bool REVERSE = false;         // from the last key to the first
constexpr int OVERLAP = 0;             // keys whose scores are taken beside the weights of those before
constexpr int POLYNOMIAL = 0;           // of every four exponentials, those that FMA units compute
constexpr int SPLIT = 1;                // blocks that share out the keys of the same queries
constexpr bool PACK_HEADS = false;      // a block has the queries of all heads that share a key head
constexpr bool TILES_FIRST = false;     // in the grid; else heads
constexpr int HEADS_AT_ONCE = 0;        // whose blocks follow one another in the grid, to find their keys in L2; 0: all
constexpr bool HEAVY_FIRST = true;     // from the last tile of a head to the first

constexpr int THREADS = 32 * WARPS;
constexpr int PART = OVERLAP ? OVERLAP : BLOCK_N / WARPS_D;  // keys whose scores a warp takes at a time
constexpr int M_TILES = BLOCK_M / (WARPS / WARPS_D) / 16;    // tiles of 16 rows a warp
constexpr int N_TILES = PART / 8;                   // tiles of 8 keys
constexpr int D_TILES = COLS / WARPS_D / 8;         // tiles of 8 columns of O
constexpr int ROWS = 2 * M_TILES;                   // a thread's rows of S and O
constexpr int Q_BYTES = 16384;              // of Q in shared memory, where O takes its place

using Tile = SharedTile<HS_TILE, true, 2, HS>;
using ValueTile = SharedTile<HS_V_TILE, true, 2, HS_V>;
using Weights = SharedTile<BLOCK_N, true>;  // of all keys of a step, where warps have the same rows
using State = OnlineTiles<M_TILES, D_TILES>;  // of the warp's rows
using Place = SplitPlace<TILES_FIRST, HEADS_AT_ONCE, HEAVY_FIRST, SPLIT>;
using Exchange = RowExchange<Weights, WARPS_D, M_TILES, BLOCK_M>;

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v,
                  View<element, 4> out, float* __restrict__ lse,
                  int NH, int NH_kv, int group, long long group_inverse, int T, int T_kv, float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const q_tile = smem;
    unsigned char* const k_tiles = q_tile + Q_BYTES;
    unsigned char* const v_tiles = k_tiles + STAGES * Tile::bytes(BLOCK_N);

    const Place place = Place::of_block<false>(PACK_HEADS ? NH_kv : NH);
    const int batch = place.batch;
    const int head = place.head;
    const RowMap<PACK_HEADS> map(head, group, T);
    const int head_kv = PACK_HEADS ? head : divided(head, group_inverse);
    const int row_begin = place.block * BLOCK_M;
    const int row_end = min(row_begin + BLOCK_M, map.count);

    const Scores<CAUSAL> scores(T, T_kv, scale);
    // Tiles of keys that a row of this block sees, or this split's part of them; those that every row sees completely
    // come first.
    const int all_tiles = (scores.keys_seen(map.query(row_end - 1)) + BLOCK_N - 1) / BLOCK_N;
    const int all_full_tiles = scores.keys_seen(map.query(row_begin)) / BLOCK_N;
    const int first_tile = SPLIT == 1 ? 0 : static_cast<long long>(all_tiles) * place.split / SPLIT;
    const int tiles = SPLIT == 1 ? all_tiles
                                 : static_cast<int>(static_cast<long long>(all_tiles) * (place.split + 1) / SPLIT) - first_tile;
    const int full_tiles = SPLIT == 1 ? all_full_tiles : min(tiles, max(0, all_full_tiles - first_tile));
    const auto first_key = [&](int step) { return (first_tile + (REVERSE ? tiles - 1 - step : step)) * BLOCK_N; };
    const auto k_tile = [&](int step) { return k_tiles + step % STAGES * Tile::bytes(BLOCK_N); };
    const auto v_tile = [&](int step) { return v_tiles + step % V_STAGES * ValueTile::bytes(BLOCK_N); };

    const TileCopier<Tile, THREADS> copier;
    const TileCopier<ValueTile, THREADS> value_copier = copier_beside<ValueTile>(copier);
    const bool vectors = allows_vectors<Tile::WIDTH>(k) && allows_vectors<ValueTile::WIDTH>(v);
    const element* const keys = copier.start(k, matrix_of(k, batch, head_kv), 0);
    const element* const values = value_copier.start(v, matrix_of(v, batch, head_kv), 0);
    const auto copy_keys = [&](int step) {
        const int key = first_key(step);
        copier.copy<BLOCK_N>(k_tile(step), keys + key * k.stride[2], k, T_kv - key, vectors);
    };
    const auto copy_values = [&](int step) {
        const int key = first_key(step);
        value_copier.copy<BLOCK_N>(v_tile(step), values + key * v.stride[2], v, T_kv - key, vectors);
    };

    if constexpr (PACK_HEADS)
        copy_mapped_rows<Tile, BLOCK_M, THREADS>(q_tile, q, map, batch, row_begin, allows_vectors<Tile::WIDTH>(q));
    else
        copier.copy<BLOCK_M>(q_tile, copier.start(q, matrix_of(q, batch, head), row_begin), q, T - row_begin,
                             allows_vectors<Tile::WIDTH>(q));
    commit_copies();
    if constexpr (STAGES == 1) {
        if (tiles > 0) copy_keys(0);
        commit_copies();
        wait_for_copies<1>();
    } else {
#pragma unroll
        for (int step = 0; step < STAGES - 1; ++step) {
            if (step < tiles) {
                copy_keys(step);
                copy_values(step);
            }
            commit_copies();
        }
        if (OVERLAP && STAGES - 1 < tiles) copy_keys(STAGES - 1);
        wait_for_copies<STAGES - (OVERLAP ? 2 : 1)>();
    }
    __syncthreads();  // Q is there; OVERLAP: and the first tile

    unsigned char* const warp_tile = q_tile + Tile::bytes(threadIdx.x / 32 / WARPS_D * 16 * M_TILES);
    // The warp's first row, and this thread's: the next ones are 8 apart. Computed anew where they are needed, for kept
    // through the loop they would crowd others out of the registers.
    const auto warp_row = [&] { return row_begin + opaque(threadIdx.x) / 32 / WARPS_D * 16 * M_TILES; };
    const auto first_row = [&] { return warp_row() + opaque(threadIdx.x) % 32 / 4; };
    const auto warp_keys = [&] { return scores.keys_seen(map.query(warp_row() + 16 * M_TILES - 1)); };
    const int part_number = sharer<WARPS_D>();
    const int key0 = 16 * part_number + threadIdx.x % 4 * 2;  // this thread's first key in a tile
    // This lane's rows in tiles, for ldmatrix, from the warp's first columns and the warp's first keys on.
    const int value_lane = ValueTile::advance(ldmatrix_rows_first<ValueTile>(), 2 * part_number);
    const int key_lane = ldmatrix_cols_first<Tile>() + Tile::bytes(16 * part_number);
    OwnRows<Tile, M_TILES, Q_IN_REGISTERS> queries(shared_address(warp_tile) +
                                                   (WARPS_D == 1 && HS_V == HS ? value_lane : ldmatrix_rows_first<Tile>()));
    queries.keep();
    unsigned char* const weights = v_tiles + V_STAGES * ValueTile::bytes(BLOCK_N);
    const int block_row = threadIdx.x / 32 / WARPS_D * 16 * M_TILES;
    const Exchange exchange = {
        reinterpret_cast<float*>(weights + Weights::bytes(BLOCK_M)) + block_row + threadIdx.x % 32 / 4,
        shared_address(weights + Weights::bytes(block_row)) + (WARPS_D == 1 ? 0 : ldmatrix_rows_first<Weights>())};
    float highest[ROWS];
    State state;

    if constexpr (OVERLAP > 0) {
        constexpr int PARTS = BLOCK_N / PART;
        float taken[2][M_TILES][N_TILES][4];  // scores of two parts of a tile, which take turns
        uint32_t p[PART / 16][M_TILES][4];

        // Each part's weights are computed beside the next part's scores, its maxima beside the product with V. Copies are
        // started between the two: a branch there keeps the compiler from moving one into the other.
        const auto attend = [&](int step, auto masked) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const int begin = part * PART;  // in the tile
                const int key = first_key(step) + begin;
                const bool last = part == PARTS - 1;
                const bool sees = !masked || key < warp_keys();
                const bool more = !masked || !last || step + 1 < tiles;
                auto& now = taken[part % 2];
                auto& next = taken[(part + 1) % 2];
                if (sees) {
                    if (masked) {
                        hide_keys_of_rows<WARPS_D>(now, scores, map, first_row(), key + key0);
                        find_highest(highest, now);
                    }
                    raise_maxima(state, highest, scores);
                }
                if (last && more) {
                    wait_for_copies<STAGES - 2>();
                    __syncthreads();  // the next tile is there; K of this one has been read, and V of the one before
                }
                if (sees) {
                    const unsigned char* const from = last ? k_tile(step + 1) : k_tile(step) + Tile::bytes(begin + PART);
                    if (more && (!masked || key + PART < warp_keys()))
                        multiply_over_head<element, WARPS_D>(next, queries, shared_address(from) + key_lane);
#pragma unroll
                    for (int i = 0; i < PART / 16; ++i) weigh<element, POLYNOMIAL>(p[i], now, 16 * i, state, scores);
                }
                if (part == 0) {
                    if (step + STAGES - 1 < tiles) copy_values(step + STAGES - 1);
                    commit_copies();
                }
                if (last && step + STAGES < tiles) copy_keys(step + STAGES);
                if (sees) {
#pragma unroll
                    for (int i = 0; i < PART / 16; ++i)
                        multiply_over_rows<element, ValueTile, WARPS_D>(
                            state.o, p[i], shared_address(v_tile(step)) + ValueTile::bytes(begin + 16 * i) + value_lane);
                    if (!masked) find_highest(highest, next);
                }
            }
        };

        if (tiles > 0) {
            multiply_over_head<element, WARPS_D>(taken[0], queries, shared_address(k_tile(0)) + key_lane);
            find_highest(highest, taken[0]);
        }
        for_each_step<true, false>(tiles, min(full_tiles, tiles - 1), attend);
    } else {
        const auto attend = [&](int step, auto masked) {
            const int key = first_key(step);
            float s[M_TILES][N_TILES][4];
            if constexpr (STAGES == 1) {
                wait_for_copies<0>();
                __syncthreads();  // K is there, and V of the step before has been read
                copy_values(step);
                commit_copies();
            } else {
                wait_for_copies<STAGES - 2>();
                __syncthreads();  // K and V are there, and those of the step before have been read
                if (step + STAGES - 1 < tiles) {
                    copy_keys(step + STAGES - 1);
                    copy_values(step + STAGES - 1);
                }
                commit_copies();
                if (masked && key >= warp_keys()) return;
            }
            multiply_over_head<element, WARPS_D>(s, queries, shared_address(k_tile(step)) + key_lane);
            if (masked) hide_keys_of_rows<WARPS_D>(s, scores, map, first_row(), key + key0);
            find_highest(highest, s);
            if constexpr (WARPS_D == 1) {
                raise_maxima(state, highest, scores);
            } else {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) highest[r] = reduce_lanes<Max, 1, 4>(highest[r]);
                exchange.put(highest);
                if constexpr (STAGES > 1) meet_sharers<WARPS_D>();  // all their maxima are there
            }
            if constexpr (STAGES == 1) {
                wait_for_copies<0>();
                __syncthreads();  // V is there, and K has been read
                if (step + 1 < tiles) copy_keys(step + 1);
                commit_copies();
            }
            if constexpr (WARPS_D > 1) {
                exchange.get<Max>(highest);
                raise_maxima(state, highest, scores);
#pragma unroll
                for (int first = 0; first < PART; first += 16) {
                    uint32_t p[M_TILES][4];
                    weigh<element, POLYNOMIAL>(p, s, first, state, scores);
                    exchange.put(p, first);
                }
                meet_sharers<WARPS_D>();  // all their weights are there
            }
#pragma unroll
            for (int first = 0; first < BLOCK_N; first += 16) {
                uint32_t p[M_TILES][4];
                if constexpr (WARPS_D == 1)
                    weigh<element, POLYNOMIAL>(p, s, first, state, scores);
                else
                    exchange.get(p, first);
                multiply_over_rows<element, ValueTile, WARPS_D>(
                    state.o, p, shared_address(v_tile(step)) + ValueTile::bytes(first) + value_lane);
            }
        };

        for_each_step<true, REVERSE>(tiles, REVERSE ? tiles - full_tiles : full_tiles, attend);
    }

    float factor[ROWS];
    float sum[ROWS];  // of all sharers
    if constexpr (WARPS_D > 1) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[r] = reduce_lanes<Sum, 1, 4>(state.rows[r].sum);
        exchange.put(sum);
        meet_sharers<WARPS_D>();  // all their sums are there, and Q has been read; O takes its place
        exchange.get<Sum>(sum);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        state.rows[r].sum = WARPS_D == 1 ? reduce_lanes<Sum, 1, 4>(state.rows[r].sum) : sum[r];
        const bool sees_keys = scores.keys_seen(map.query(first_row() + 8 * r)) > 0;
        factor[r] = sees_keys ? __fdividef(1.0f, state.rows[r].sum) : 0.0f;
        if (sees_keys && fabsf(state.rows[r].maximum) > LARGEST_SCORE) factor[r] = not_a_number();
    }
    if (part_number == 0) write_log_sums(lse, state, map, scores, batch, NH, first_row());
    if constexpr (WARPS_D == 1) __syncwarp();  // Q has been read; O takes its place
    constexpr bool O_IS_WIDER = ValueTile::ROW_BYTES > Tile::ROW_BYTES;  // than Q: a warp's takes that of others, too
    if constexpr (O_IS_WIDER) __syncthreads();
    unsigned char* const out_tile = O_IS_WIDER ? q_tile + ValueTile::bytes(block_row) : warp_tile;
    const bool finite = place_scaled_rows<element, ValueTile, WARPS_D>(out_tile, state.o, factor, part_number);
    meet_sharers<WARPS_D>();
    write_mapped_rows<ValueTile, 8 * ROWS, 32 * WARPS_D>(out, map, batch, warp_row(), out_tile);

    if (!__syncthreads_or(!finite)) return;
    const Place again = Place::of_block<true>(PACK_HEADS ? NH_kv : NH);
    const RowMap<PACK_HEADS> rows(again.head, group, T);
    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k), read_only(v), NH, group,
                                                     Scores<CAUSAL>(T, T_kv, scale)};
#pragma unroll 1
    for (int n = opaque(threadIdx.x) / 32; n < BLOCK_M; n += WARPS) {
        const int row = again.block * BLOCK_M + n;
        if (row < rows.count) exact.mend(out, lse, again.batch, rows.head(row), rows.query(row));
    }
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// launch attention_forward grid=(48, 8, 1) block=(128, 1, 1) smem=65536 (q, k, v, out, lse, NH, NH_kv, GROUP, GROUP_INVERSE, T, T_kv, scale)
