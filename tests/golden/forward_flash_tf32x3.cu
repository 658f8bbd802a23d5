// autotune: forward/flash_tf32x3: tiled attention with an online softmax on tensor cores, each fp32 product as three (3xTF32)
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp32 causal=1 layout=bthd
// configuration: BLOCK_M=128 WARPS=4 BLOCK_N=32 STAGES=2 MIN_BLOCKS=2 SMALL=bf16 Q_IN=shared_split UNROLL=32 SWIZZLE=False REVERSE=False PEEL=True HEAVY_FIRST=True GRID_MAP=x=head_batch,y=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          706c3391b1e4f1d1

#include "common/attention/exact.cuh"
#include "common/attention/grid.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/attention/steps.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/opaque.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/tile/tile_copy.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/deep_floats.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/reduce.cuh"
#include "common/warp/tf32_operands.cuh"
#include "common/warp/tf32_bf16_operands.cuh"

using element = float;

/// Where the operands of Q come from: split whenever they are read, split once in shared memory, or kept.
enum class QueriesIn { SHARED, SHARED_SPLIT, REGISTERS };

constexpr int HS = 64;
constexpr int HS_TILE = 64;  // columns of a row in shared memory, those beyond HS zeros
constexpr int HS_V = 64;  // of V and O
constexpr int HS_V_TILE = 64;
constexpr int COLS = 64;  // of O that are computed
constexpr bool CAUSAL = true;
constexpr int WARPS = 4;
constexpr int MIN_BLOCKS = 2;  // a multiprocessor, asked of the register allocator
constexpr int BLOCK_M = 128;  // queries a block
constexpr int BLOCK_N = 32;  // keys a step
constexpr int STAGES = 2;  // tiles of K and of V in shared memory
constexpr int Q_TILES = 2;  // of Q: one, or its parts in one each
constexpr QueriesIn Q_IN = QueriesIn::SHARED_SPLIT;
constexpr int UNROLL = 32;  // steps over the head that are written out, at most
constexpr bool REVERSE = false;  // from the last key to the first
constexpr bool PEEL = true;  // steps with a mask have a loop of their own

constexpr int THREADS = 32 * WARPS;
constexpr int M_TILES = BLOCK_M / WARPS / 16;  // tiles of 16 queries a warp
constexpr int N_TILES = BLOCK_N / 8;           // tiles of 8 keys
constexpr int D_TILES = COLS / 8;              // tiles of 8 columns of O
constexpr int GROUP = M_TILES * COLS > 128 || D_TILES % 4 != 0 ? 2 : 4;  // of these are summed at a time
constexpr int ROWS = 2 * M_TILES;              // a thread's rows of S and O

using Tile = FloatTile<HS_TILE, false, HS>;
using ValueTile = FloatTile<HS_V_TILE, false, HS_V>;
using Values = DeepFloats<ValueTile>;
using OperandA = MixedA;  // small products in bf16
using OperandB = MixedB;
using Place = SplitPlace<false, 0, true, 1>;

/// This warp's queries as A operands, 8 columns a step.
struct Queries {
    SharedAddress row;  // of this lane, for ldmatrix
    OperandA kept[Q_IN == QueriesIn::REGISTERS ? Tile::USED_PAIRS : 1][M_TILES];

    __device__ __forceinline__ explicit Queries(SharedAddress lane_row) : row(lane_row)
    {
        if constexpr (Q_IN == QueriesIn::REGISTERS) {
#pragma unroll
            for (int step = 0; step < Tile::USED_PAIRS; ++step)
#pragma unroll
                for (int m = 0; m < M_TILES; ++m) {
                    uint32_t bits[4];
                    ldmatrix(bits, place(step, m));
                    kept[step][m].set(bits);
                }
        }
    }

    __device__ __forceinline__ SharedAddress place(int step, int m) const
    {
        return Tile::advance(row, 2 * step) + Tile::bytes(16 * m);
    }

    __device__ __forceinline__ void read(OperandA (&to)[M_TILES], int step) const
    {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            if constexpr (Q_IN == QueriesIn::REGISTERS) {
                to[m] = kept[step][m];
            } else if constexpr (Q_IN == QueriesIn::SHARED) {
                uint32_t bits[4];
                ldmatrix(bits, place(step, m));
                to[m].set(bits);
            } else {
                ldmatrix(to[m].big, place(step, m));
                ldmatrix(to[m].small, place(step, m) + Tile::bytes(BLOCK_M));  // in a tile of their own
            }
        }
    }
};

/// Splits the warp's rows of Q in shared memory: big parts in place, small ones in the tile after it.
__device__ __forceinline__ void split_queries(unsigned char* warp_tile)
{
    constexpr int PAIRS = Tile::USED_PAIRS;  // of chunks: 8 columns, whose two halves share registers of an operand
#pragma unroll 2
    for (int i = threadIdx.x % 32; i < 16 * M_TILES * PAIRS; i += 32) {
        unsigned char* const chunks[2] = {warp_tile + Tile::offset(i / PAIRS, i % PAIRS * 2),
                                          warp_tile + Tile::offset(i / PAIRS, i % PAIRS * 2 + 1)};
        Vector<uint32_t, 4> big[2], small[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) big[half] = *reinterpret_cast<const Vector<uint32_t, 4>*>(chunks[half]);
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const uint32_t bits[4] = {big[0].at[t], 0, big[1].at[t], 0};
            OperandA parts;
            parts.set(bits);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                big[half].at[t] = parts.big[2 * half];
                small[half].at[t] = parts.small[2 * half];
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            *reinterpret_cast<Vector<uint32_t, 4>*>(chunks[half]) = big[half];
            *reinterpret_cast<Vector<uint32_t, 4>*>(chunks[half] + Tile::bytes(BLOCK_M)) = small[half];
        }
    }
    __syncwarp();
}

/// S = Q K^T for this warp's queries and the keys of a tile. `row`: the lane's in the tile of K, for ldmatrix. Small
/// products have sums of their own: in one sum they would take part in truncations that are large for them.
__device__ __forceinline__ void multiply_keys(float (&s)[M_TILES][N_TILES][4], const Queries& queries,
                                              SharedAddress row)
{
    float sum[M_TILES][N_TILES][4] = {};
    float rest[M_TILES][N_TILES][4] = {};
#pragma unroll UNROLL
    for (int step = 0; step < Tile::USED_PAIRS; ++step) {
        OperandA a[M_TILES];
        queries.read(a, step);
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            uint32_t both[4];
            ldmatrix(both, Tile::advance(row, 2 * step) + Tile::bytes(8 * n));
            OperandB b[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t bits[2] = {both[2 * i], both[2 * i + 1]};
                b[i].set(bits);
            }
            multiply_tf32x3(sum, rest, n, a, b);
        }
    }
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[m][n][e] = sum[m][n][e] + rest[m][n][e];
}

/// Hides the keys that queries do not see. `beyond`: of the thread's first query and key, see Scores.
__device__ __forceinline__ void mask(float (&s)[M_TILES][N_TILES][4], int beyond)
{
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int queries = 16 * m + e / 2 * 8;
                const int keys = 8 * n + e % 2;
                if (beyond + queries * Scores<CAUSAL>::BEYOND_NEXT_QUERY + keys > 0) s[m][n][e] = minus_infinity();
            }
}

/// S becomes P, weights relative to each row's maximum so far. `factor` rescales what was summed before. A row's sum
/// takes this thread's columns alone; lanes are added up at the end.
__device__ __forceinline__ void soften(float (&s)[M_TILES][N_TILES][4], OnlineRow (&rows)[ROWS], float (&factor)[ROWS],
                                       const Scores<CAUSAL>& scores)
{
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float highest = minus_infinity();
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
            highest = fmaxf(highest, fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
        factor[r] = rows[r].raise(scores.base2(reduce_lanes<Max, 1, 4>(highest)));
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float& weight = s[r / 2][n][r % 2 * 2 + e];
                weight = scores.weight(weight, rows[r].origin());
                rows[r].sum += weight;
            }
    }
}

/// P for 8 keys as A operands: where D lies, with neighbouring keys 4 apart in the depth of the product.
__device__ __forceinline__ void split_weights(OperandA (&a)[M_TILES], const float (&p)[M_TILES][N_TILES][4], int n)
{
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
        uint32_t bits[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) bits[i] = __float_as_uint(p[m][n][i % 2 * 2 + i / 2]);
        a[m].set(bits);
    }
}

/// O = factor * O + P V for the keys of a tile. Tensor cores truncate their sums, so each tile's product begins at 0 and
/// is added in fp32.
__device__ __forceinline__ void add_values(float (&o)[M_TILES][D_TILES][4], const float (&factor)[ROWS],
                                           const float (&p)[M_TILES][N_TILES][4], const Values& values,
                                           const unsigned char* tile)
{
    OperandA a[N_TILES][M_TILES];
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) split_weights(a[n], p, n);
#pragma unroll
    for (int first = 0; first < D_TILES; first += GROUP) {
        float part[M_TILES][GROUP][4] = {};
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) {
            OperandB b[GROUP];
#pragma unroll
            for (int d = 0; d < GROUP; ++d) values.read(b[d], tile + ValueTile::bytes(8 * n), first + d);
            multiply_tf32x3(part, 0, a[n], b);
        }
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int d = 0; d < GROUP; ++d)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    float& sum = o[m][first + d][e];
                    sum = fmaf(sum, factor[2 * m + e / 2], part[m][d][e]);
                }
    }
}

/// Writes factor * O to a matrix. `row`: the thread's first, `T`: rows of the matrix.
__device__ __forceinline__ bool write_rows(const View<element, 4>& out, element* matrix, int row, int T,
                                           const float (&o)[M_TILES][D_TILES][4], const float (&factor)[ROWS])
{
    const bool vectors = allows_vectors<2>(out);
    float zero = 0.0f;  // 0 times what is written
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        if (row + 8 * r >= T) break;
        element* const to = matrix + (row + 8 * r) * out.stride[2];
#pragma unroll
        for (int d = 0; d < ValueTile::USED_PAIRS; ++d) {
            const float part[2] = {o[r / 2][d][r % 2 * 2] * factor[r], o[r / 2][d][r % 2 * 2 + 1] * factor[r]};
            store_part<HS_V % 8 == 0 ? HS_V : COLS, HS_V>(to, out.stride[3], 8 * d + threadIdx.x % 4 * 2, part, vectors);
            zero = fmaf(0.0f, part[0], fmaf(0.0f, part[1], zero));
        }
    }
    return zero == 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ lse, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const q_tile = smem;
    unsigned char* const k_tiles = q_tile + Q_TILES * Tile::bytes(BLOCK_M);
    unsigned char* const v_tiles = k_tiles + STAGES * Tile::bytes(BLOCK_N);

    const Place place = Place::of_block<false>(NH);
    const int batch = place.batch;
    const int head = place.head;
    const int head_kv = head / (NH / NH_kv);
    const int query_begin = place.block * BLOCK_M;
    const int query_end = min(query_begin + BLOCK_M, T);

    const Scores<CAUSAL> scores(T, T_kv, scale);
    // Tiles of keys that a query of this block sees; those that every query sees completely come first.
    const int tiles = (scores.keys_seen(query_end - 1) + BLOCK_N - 1) / BLOCK_N;
    const int full_tiles = scores.keys_seen(query_begin) / BLOCK_N;
    const auto first_key = [&](int step) { return (REVERSE ? tiles - 1 - step : step) * BLOCK_N; };
    const auto k_tile = [&](int step) { return k_tiles + step % STAGES * Tile::bytes(BLOCK_N); };
    const auto v_tile = [&](int step) { return v_tiles + step % STAGES * ValueTile::bytes(BLOCK_N); };

    const TileCopier<Tile, THREADS> copier;
    const TileCopier<ValueTile, THREADS> value_copier = copier_beside<ValueTile>(copier);
    const bool vectors = allows_vectors<Tile::WIDTH>(k) && allows_vectors<ValueTile::WIDTH>(v);
    const element* keys = copier.start(k, matrix_of(k, batch, head_kv), 0);
    const element* values = value_copier.start(v, matrix_of(v, batch, head_kv), 0);
    const auto copy_keys = [&](int step) {
        const int key = first_key(step);
        copier.copy<BLOCK_N>(k_tile(step), keys + key * k.stride[2], k, T_kv - key, vectors);
    };
    const auto copy_values = [&](int step) {
        const int key = first_key(step);
        value_copier.copy<BLOCK_N>(v_tile(step), values + key * v.stride[2], v, T_kv - key, vectors);
    };

    copier.copy<BLOCK_M>(q_tile, copier.start(q, matrix_of(q, batch, head), query_begin), q, T - query_begin,
                         allows_vectors<Tile::WIDTH>(q));
    commit_copies();
    if constexpr (STAGES == 1) {
        if (tiles > 0) copy_keys(0);
        commit_copies();
    } else {
#pragma unroll
        for (int step = 0; step < STAGES - 1; ++step) {
            if (step < tiles) {
                copy_keys(step);
                copy_values(step);
            }
            commit_copies();
        }
    }
    wait_for_copies<STAGES == 1 ? 1 : STAGES - 1>();
    __syncthreads();  // Q is there

    const int warp = threadIdx.x / 32;
    unsigned char* const warp_tile = q_tile + Tile::bytes(warp * 16 * M_TILES);
    const int warp_begin = query_begin + warp * 16 * M_TILES;
    const int row0 = warp_begin + threadIdx.x % 32 / 4;  // this thread's rows are row0 + r * 8
    const int warp_keys = scores.keys_seen(warp_begin + 16 * M_TILES - 1);
    const int key_lane = ldmatrix_cols_first<Tile>();  // this lane's row in a tile of K, for ldmatrix
    const Values value_rows;
    if constexpr (Q_IN == QueriesIn::SHARED_SPLIT) split_queries(warp_tile);
    const Queries queries(shared_address(warp_tile) + ldmatrix_rows_first<Tile>());
    OnlineRow rows[ROWS];
    float o[M_TILES][D_TILES][4] = {};

    const auto attend = [&](int step, auto masked) {
        const int key = first_key(step);
        float s[M_TILES][N_TILES][4];
        float factor[ROWS];
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
            if (masked && key >= warp_keys) return;
        }
        multiply_keys(s, queries, shared_address(k_tile(step)) + key_lane);
        if (masked) mask(s, scores.beyond(row0, key + threadIdx.x % 4 * 2));
        soften(s, rows, factor, scores);
        if constexpr (STAGES == 1) {
            wait_for_copies<0>();
            __syncthreads();  // V is there, and K has been read
            if (step + 1 < tiles) copy_keys(step + 1);
            commit_copies();
        }
        add_values(o, factor, s, value_rows, v_tile(step));
    };

    if constexpr (PEEL) {
        for_each_step<PEEL, REVERSE>(tiles, REVERSE ? tiles - full_tiles : full_tiles, attend);
    } else {
#pragma unroll 1
        for (int step = 0; step < tiles; ++step) attend(step, first_key(step) >= full_tiles * BLOCK_N);
    }

    float factor[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int query = row0 + 8 * r;
        const bool sees_keys = scores.keys_seen(query) > 0;
        rows[r].sum = reduce_lanes<Sum, 1, 4>(rows[r].sum);
        factor[r] = sees_keys ? 1.0f / rows[r].sum : 0.0f;
        if (sees_keys && fabsf(rows[r].maximum) > LARGEST_SCORE) factor[r] = not_a_number();
        if (threadIdx.x % 4 == 0 && query < T)
            lse[(static_cast<long long>(batch) * NH + head) * T + query] =
                sees_keys ? scores.log_sum_exp(rows[r]) : minus_infinity();
    }
    const bool finite = write_rows(out, matrix_of(out, batch, head), row0, T, o, factor);

    if (!__syncthreads_or(!finite)) return;
    const Place again = Place::of_block<true>(NH);
    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k),  read_only(v),
                                                           NH,           NH / NH_kv, Scores<CAUSAL>(T, T_kv, scale)};
#pragma unroll 1
    for (int n = opaque(threadIdx.x) / 32; n < BLOCK_M; n += WARPS) {
        const int query = again.block * BLOCK_M + n;
        if (query < T) exact.mend(out, lse, again.batch, again.head, query);
    }
}

// buffer q: 3145728 fp32, input
// buffer k: 3145728 fp32, input
// buffer v: 3145728 fp32, input
// buffer out: 3145728 fp32, output
// buffer lse: 49152 fp32, output
// launch attention_forward grid=(48, 8, 1) block=(128, 1, 1) smem=104448 (q, k, v, out, lse, NH, NH_kv, T, T_kv, scale)
