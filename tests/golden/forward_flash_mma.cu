// autotune: forward/flash_mma: tiled attention with an online softmax on tensor cores (mma.sync), 16-bit operands, fp32 accumulation
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=128 WARPS=4 WARPS_D=1 BLOCK_N=64 STAGES=3 MIN_BLOCKS=2 Q_IN_REGISTERS=True SWIZZLE=True REVERSE=False OVERLAP=0 POLYNOMIAL=0 SPLIT=1 PACK_HEADS=False HEAVY_FIRST=True HEADS_AT_ONCE=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          a8f30a7086fa509e

#include "common/attention/exact.cuh"
#include "common/attention/exp2_polynomial.cuh"
#include "common/attention/row_map.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/tile/tile_copy.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

constexpr int HS = 64;
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
constexpr bool PACK_HEADS = false;      // a block has the queries of all heads that share a key head

constexpr int THREADS = 32 * WARPS;
constexpr int PART = OVERLAP ? OVERLAP : BLOCK_N / WARPS_D;  // keys whose scores a warp takes at a time
constexpr int M_TILES = BLOCK_M / (WARPS / WARPS_D) / 16;    // tiles of 16 rows a warp
constexpr int N_TILES = PART / 8;                   // tiles of 8 keys
constexpr int D_TILES = HS / WARPS_D / 8;           // tiles of 8 columns of O
constexpr int ROWS = 2 * M_TILES;                   // a thread's rows of S and O
constexpr float GROWTH = 8.0f;                      // O is not rescaled for less: weights stay below 2^GROWTH
constexpr float LOWEST = -3.402823466e38f;          // a maximum before there are scores: finite, so never NaN

using Tile = SharedTile<HS, true>;

/// A flag whose value the compiler knows.
template <bool VALUE>
struct Known {
    __device__ constexpr operator bool() const { return VALUE; }
};

/// What a block works on.
struct Place {
    int batch;
    int head;
    int block;  // of the head's rows

    /// Where a batch has `heads` heads. ANEW: computed once more, so that nothing is kept since the last time.
    template <bool ANEW>
    static __device__ __forceinline__ Place of_block(int heads)
    {
        const auto number = [](unsigned x) -> unsigned { return ANEW ? opaque(x) : x; };
        const int index = gridDim.y - 1 - number(blockIdx.y);
        const unsigned matrix = number(blockIdx.x);
        const int batch = matrix / heads;
        const int head = matrix % heads;
        return {batch, head, index};
    }
};

/// This warp's queries as A operands, 16 columns a step.
struct Queries {
    SharedAddress row;  // of this lane, for ldmatrix
    uint32_t kept[Q_IN_REGISTERS ? HS / 16 : 1][M_TILES][4];

    __device__ __forceinline__ Queries(SharedAddress lane_row) : row(lane_row)
    {
        if constexpr (Q_IN_REGISTERS) {
#pragma unroll
            for (int step = 0; step < HS / 16; ++step) read(kept[step], step);
        }
    }

    __device__ __forceinline__ void read(uint32_t (&to)[M_TILES][4], int step) const
    {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) ldmatrix(to[m], Tile::advance(row, 2 * step) + Tile::bytes(16 * m));
    }
};

/// S = Q K^T for this warp's queries and keys from a tile. `row`: the lane's in the tile of K, for ldmatrix.
__device__ __forceinline__ void multiply_keys(float (&s)[M_TILES][N_TILES][4], const Queries& queries,
                                              SharedAddress row)
{
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[m][n][e] = 0.0f;
#pragma unroll
    for (int step = 0; step < HS / 16; ++step) {
        uint32_t read[M_TILES][4];
        if constexpr (!Q_IN_REGISTERS) queries.read(read, step);
        const auto& a = Q_IN_REGISTERS ? queries.kept[Q_IN_REGISTERS ? step : 0] : read;
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            uint32_t b[4];
            ldmatrix(b, Tile::advance(row, 2 * step) + Tile::bytes(8 * n));
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                mma_16x8x16<element>(s[m][n], a[m], b[0], b[1]);
                mma_16x8x16<element>(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/// What a warp knows of its rows so far.
struct State {
    OnlineRow rows[ROWS];
    float o[M_TILES][D_TILES][4] = {};

    __device__ __forceinline__ State()
    {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) rows[r].maximum = LOWEST;
    }
};

/// Hides the keys that rows do not see. `first_row`, `first_key`: this thread's.
__device__ __forceinline__ void mask(float (&s)[M_TILES][N_TILES][4], const Scores<CAUSAL>& scores,
                                     const RowMap<PACK_HEADS>& map, int first_row, int first_key)
{
    const int first_beyond = scores.beyond(map.query(first_row), first_key);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int beyond = PACK_HEADS ? scores.beyond(map.query(first_row + 8 * r), first_key)
                                      : first_beyond + 8 * r * Scores<CAUSAL>::BEYOND_NEXT_QUERY;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (beyond + 8 * n + e > 0) s[r / 2][n][r % 2 * 2 + e] = minus_infinity();
    }
}

/// The highest score of each row among this thread's.
__device__ __forceinline__ void find_highest(float (&highest)[ROWS], const float (&s)[M_TILES][N_TILES][4])
{
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        highest[r] = s[r / 2][0][r % 2 * 2];
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
            highest[r] = fmaxf(highest[r], fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
    }
}

/// Where a row's highest score has grown much, raises the warp's maxima and rescales what was summed before.
__device__ __forceinline__ void raise_maxima(State& state, const float (&highest)[ROWS], const Scores<CAUSAL>& scores)
{
    bool grows = false;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) grows = grows || scores.base2(highest[r]) > state.rows[r].maximum + GROWTH;
    if (!__any_sync(ALL_LANES, grows)) return;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float factor = state.rows[r].raise(scores.base2(reduce_lanes<Max, 1, 4>(highest[r])));
#pragma unroll
        for (int d = 0; d < D_TILES; ++d) {
            state.o[r / 2][d][r % 2 * 2] *= factor;
            state.o[r / 2][d][r % 2 * 2 + 1] *= factor;
        }
    }
}

/// P, the weights of S, for 16 keys from `key` on, as A operands.
__device__ __forceinline__ void weigh(uint32_t (&p)[M_TILES][4], const float (&s)[M_TILES][N_TILES][4], int key,
                                      State& state, const Scores<CAUSAL>& scores)
{
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            OnlineRow& row = state.rows[2 * m + i % 2];
            const float(&pair)[4] = s[m][key / 8 + i / 2];
            const float low = scores.weight(pair[i % 2 * 2], row.maximum);
            // FMA units compute some of the exponentials, as exactly as the log-sum-exp has to be.
            const bool by_polynomial = i / 2 >= 2 - POLYNOMIAL;
            const float high = by_polynomial ? exp2_polynomial<4>(fmaf(pair[i % 2 * 2 + 1], scores.scale_base2, -row.maximum))
                                             : scores.weight(pair[i % 2 * 2 + 1], row.maximum);
            row.sum += low + high;  // of this thread's columns: lanes are added up at the end
            p[m][i] = pack<element>(low, high);
        }
}

/// O += P V for 16 keys. `row`: the lane's in the tile of V, from the first of them on, for ldmatrix.
__device__ __forceinline__ void multiply_values(State& state, const uint32_t (&p)[M_TILES][4], SharedAddress row)
{
#pragma unroll
    for (int d = 0; d < D_TILES; d += 2) {
        uint32_t b[4];
        ldmatrix_transposed(b, Tile::advance(row, d));
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            mma_16x8x16<element>(state.o[m][d], p[m], b[0], b[1]);
            mma_16x8x16<element>(state.o[m][d + 1], p[m], b[2], b[3]);
        }
    }
}


/// Lays O, scaled, into the warp's part of a tile. Returns whether this thread's rows are finite.
__device__ __forceinline__ bool lay_out(unsigned char* warp_tile, const State& state, const float (&factor)[ROWS])
{
    const int lane = threadIdx.x % 32;
    bool finite = true;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
        float zeros[4] = {};  // 0 times the rows
#pragma unroll
        for (int d = 0; d < D_TILES; d += 2) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int r = 2 * m + i % 2;
                const float(&four)[4] = state.o[m][d + i / 2];
                pairs[i] = pack<element>(four[i % 2 * 2] * factor[r], four[i % 2 * 2 + 1] * factor[r]);
                const int chunk = d + i / 2;
                *reinterpret_cast<uint32_t*>(warp_tile + Tile::offset(8 * r + lane / 4, chunk) + lane % 4 * 4) = pairs[i];
            }
            mma_16x8x16<element>(zeros, pairs, 0, 0);
        }
        finite = finite && zeros[0] == 0.0f && zeros[2] == 0.0f;
    }
    return finite;
}

/// Writes the log-sum-exp of the warp's rows: four lanes have a row's sum, so each of them takes every fourth row.
__device__ __forceinline__ void write_log_sums(float* lse, const State& state, const RowMap<PACK_HEADS>& map,
                                               const Scores<CAUSAL>& scores, int batch, int NH, int first_row)
{
    const int turn = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
        OnlineRow mine = state.rows[r];
#pragma unroll
        for (int i = 1; i < 4 && r + i < ROWS; ++i)
            if (turn == i) mine = state.rows[r + i];
        const int row = first_row + 8 * (r + turn);
        if (r + turn >= ROWS || row >= map.count) continue;
        lse[(static_cast<long long>(batch) * NH + map.head(row)) * scores.T + map.query(row)] =
            scores.keys_seen(map.query(row)) > 0 ? scores.log_sum_exp(mine) : minus_infinity();
    }
}

/// Writes the warp's part of a tile to rows of `out` from `first` on.
__device__ __forceinline__ void write_rows(const View<element, 4>& out, const RowMap<PACK_HEADS>& map, int batch,
                                           int first, const unsigned char* warp_tile)
{
    const bool vectors = allows_vectors<8>(out);
#pragma unroll 4
    for (int i = threadIdx.x % (32 * WARPS_D); i < 8 * ROWS * Tile::CHUNKS; i += 32 * WARPS_D) {
        const int row = i / Tile::CHUNKS;
        const int chunk = i % Tile::CHUNKS;
        if (first + row >= map.count) break;
        const unsigned char* const part = warp_tile + Tile::offset(row, chunk);
        element* const result = map.at(out, batch, first + row) + chunk * 8 * out.stride[3];
        if (vectors) {  // as one word: of a vector of elements the compiler makes a store each
            *reinterpret_cast<uint4*>(result) = *reinterpret_cast<const uint4*>(part);
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) result[e * out.stride[3]] = reinterpret_cast<const element*>(part)[e];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v,
                  View<element, 4> out, float* __restrict__ lse,
                  int NH, int NH_kv, int group, long long group_inverse, int T, int T_kv, float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const q_tile = smem;
    unsigned char* const k_tiles = q_tile + Tile::bytes(BLOCK_M);
    unsigned char* const v_tiles = k_tiles + STAGES * Tile::bytes(BLOCK_N);

    const Place place = Place::of_block<false>(PACK_HEADS ? NH_kv : NH);
    const int batch = place.batch;
    const int head = place.head;
    const RowMap<PACK_HEADS> map(head, group, T);
    const int head_kv = PACK_HEADS ? head : key_head(head, group_inverse);
    const int row_begin = place.block * BLOCK_M;
    const int row_end = min(row_begin + BLOCK_M, map.count);

    const Scores<CAUSAL> scores(T, T_kv, scale);
    // Tiles of keys that a row of this block sees; those that every row sees completely come first.
    const int tiles = (scores.keys_seen(map.query(row_end - 1)) + BLOCK_N - 1) / BLOCK_N;
    const int full_tiles = scores.keys_seen(map.query(row_begin)) / BLOCK_N;
    const auto first_key = [&](int step) { return (REVERSE ? tiles - 1 - step : step) * BLOCK_N; };
    const auto k_tile = [&](int step) { return k_tiles + step % STAGES * Tile::bytes(BLOCK_N); };
    const auto v_tile = [&](int step) { return v_tiles + step % V_STAGES * Tile::bytes(BLOCK_N); };

    const TileCopier<Tile, THREADS> copier;
    const bool vectors = allows_vectors<8>(k) && allows_vectors<8>(v);
    const element* const keys = copier.start(k, matrix_of(k, batch, head_kv), 0);
    const element* const values = copier.start(v, matrix_of(v, batch, head_kv), 0);
    const auto copy_keys = [&](int step) {
        const int key = first_key(step);
        copier.copy<BLOCK_N>(k_tile(step), keys + key * k.stride[2], k, T_kv - key, vectors);
    };
    const auto copy_values = [&](int step) {
        const int key = first_key(step);
        copier.copy<BLOCK_N>(v_tile(step), values + key * v.stride[2], v, T_kv - key, vectors);
    };

    copier.copy<BLOCK_M>(q_tile, copier.start(q, matrix_of(q, batch, head), row_begin), q, T - row_begin,
                         allows_vectors<8>(q));
    commit_copies();
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < tiles) {
            copy_keys(step);
            copy_values(step);
        }
        commit_copies();
    }
    wait_for_copies<STAGES - 1>();
    __syncthreads();  // Q is there

    unsigned char* const warp_tile = q_tile + Tile::bytes(threadIdx.x / 32 / WARPS_D * 16 * M_TILES);
    // The warp's first row, and this thread's: the next ones are 8 apart. Computed anew where they are needed, for kept
    // through the loop they would crowd others out of the registers.
    const auto warp_row = [&] { return row_begin + opaque(threadIdx.x) / 32 / WARPS_D * 16 * M_TILES; };
    const auto first_row = [&] { return warp_row() + opaque(threadIdx.x) % 32 / 4; };
    const auto warp_keys = [&] { return scores.keys_seen(map.query(warp_row() + 16 * M_TILES - 1)); };
    const int key0 = threadIdx.x % 4 * 2;                // this thread's first key in a tile
    const int value_lane = ldmatrix_rows_first<Tile>();  // this lane's row in a tile, for ldmatrix
    const int key_lane = ldmatrix_cols_first<Tile>();
    const Queries queries(shared_address(warp_tile) + value_lane);
    float highest[ROWS];
    State state;

    const auto attend = [&](int step, auto masked) {
        const int key = first_key(step);
        float s[M_TILES][N_TILES][4];
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // K and V are there, and those of the step before have been read
        if (step + STAGES - 1 < tiles) {
            copy_keys(step + STAGES - 1);
            copy_values(step + STAGES - 1);
        }
        commit_copies();
        if (masked && key >= warp_keys()) return;
        multiply_keys(s, queries, shared_address(k_tile(step)) + key_lane);
        if (masked) mask(s, scores, map, first_row(), key + key0);
        find_highest(highest, s);
        raise_maxima(state, highest, scores);
#pragma unroll
        for (int first = 0; first < BLOCK_N; first += 16) {
            uint32_t p[M_TILES][4];
            weigh(p, s, first, state, scores);
            multiply_values(state, p, shared_address(v_tile(step)) + Tile::bytes(first) + value_lane);
        }
    };

    int step = 0;
#pragma unroll 1
    for (; step < full_tiles; ++step) attend(step, Known<false>());
#pragma unroll 1
    for (; step < tiles; ++step) attend(step, Known<true>());

    float factor[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        state.rows[r].sum = reduce_lanes<Sum, 1, 4>(state.rows[r].sum);
        const bool sees_keys = scores.keys_seen(map.query(first_row() + 8 * r)) > 0;
        factor[r] = sees_keys ? __fdividef(1.0f, state.rows[r].sum) : 0.0f;
        if (sees_keys && fabsf(state.rows[r].maximum) > LARGEST_SCORE) factor[r] = not_a_number();
    }
    write_log_sums(lse, state, map, scores, batch, NH, first_row());
    __syncwarp();  // Q has been read; O takes its place
    const bool finite = lay_out(warp_tile, state, factor);
    __syncwarp();
    write_rows(out, map, batch, warp_row(), warp_tile);

    if (!__syncthreads_or(!finite)) return;
    const Place again = Place::of_block<true>(PACK_HEADS ? NH_kv : NH);
    const RowMap<PACK_HEADS> rows(again.head, group, T);
    const ExactForward<HS, CAUSAL, element> exact = {read_only(q), read_only(k), read_only(v), NH, group,
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
