// autotune: backward/flash_mma: tiles on tensor cores (mma.sync), 16-bit operands, fp32 accumulation; scores recomputed transposed, so that P and dS feed the next products from registers
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: DQ_ACCUMULATE=atomic BLOCK_N=128 BLOCK_M=64 OWN_TILES=2 WARPS_D=1 CHUNK=32 DQ_WARPS_M=2 OVERLAP=False STAGES=2 IN_REGISTERS=none MIN_BLOCKS=2 SWIZZLE=True REVERSE=False PEEL=False HEAVY_FIRST=True GRID_MAP=x=head_batch,y=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          d4908b0a92e68946

#include "common/async_copy.cuh"
#include "common/gradient.cuh"
#include "common/gradient_mma.cuh"
#include "common/ldmatrix.cuh"
#include "common/mma.cuh"
#include "common/score.cuh"
#include "common/shared_tile.cuh"
#include "common/softmax.cuh"
#include "common/tile_copy.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr bool CAUSAL = true;
constexpr int OWN_TILES = 2;      // tiles of 16 rows that a warp owns
constexpr int WARPS_D = 1;        // that own the same keys and share out queries, and columns of dK and dV
constexpr int MIN_BLOCKS = 2;     // a multiprocessor, asked of the register allocator
constexpr int BLOCK_N = 128;      // keys a block
constexpr int BLOCK_M = 64;       // queries a step
constexpr int CHUNK = 32;         // of them a warp works on at once
constexpr int STAGES = 2;         // tiles of Q and of dO in shared memory
constexpr bool K_IN_REGISTERS = false;  // or read from shared memory at every step
constexpr bool V_IN_REGISTERS = false;
constexpr bool REVERSE = false;     // from the last step to the first
constexpr int ROW_THREADS = 256;  // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;      // of them a row

constexpr int WARPS = BLOCK_N * WARPS_D / OWN_TILES / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int CHUNKS = BLOCK_M / CHUNK / WARPS_D;          // of a tile, a warp
constexpr int C_TILES = CHUNK / 8;               // tiles of 8 in a chunk
constexpr int D_TILES = HS / WARPS_D / 8;        // tiles of 8 columns of the head in a warp's gradients
constexpr int NONE_SEEN = 1 << 30;

using Tile = SharedTile<HS, true>;
using Products = float[OWN_TILES][C_TILES][4];   // S or dP: own rows by a chunk
using OwnGradients = float[OWN_TILES][D_TILES][4];  // own rows by the head

using GradientTile = SharedTile<BLOCK_M, true>;      // dS, transposed: keys by queries
constexpr int DQ_WARPS_M = 2;                       // warps over the queries of dQ, the others over its columns
constexpr int DQ_WARPS_D = WARPS / DQ_WARPS_M;
constexpr int DQ_M_TILES = BLOCK_M / DQ_WARPS_M / 16;       // tiles of 16 queries a warp
constexpr int DQ_D_TILES = HS / DQ_WARPS_D / 8;             // tiles of 8 columns a warp

/// What the forward pass left of a query, for the backward pass.
struct RowSums {
    float lse;    // in base 2; +inf, which makes all its weights 0, for a query without keys or past the last one
    float delta;  // sum of dO * O
};

/// What all blocks work on.
struct Operands {
    View<element, 4> q;
    View<element, 4> k;
    View<element, 4> v;
    View<element, 4> dout;
    const RowSums* row_sums;  // of `rows` queries a head
    int NH;
    int NH_kv;
    int T;
    int T_kv;
    int rows;
    float scale;

    __device__ __forceinline__ const RowSums* sums_of(int batch, int head, int query) const
    {
        return row_sums + (static_cast<long long>(batch) * NH + head) * rows + query;
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
          float* __restrict__ row_sums, float* __restrict__ dq_accumulator, int NH, int T, int rows)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>();
    const float delta = dot_of_rows<HS, 8, ROW_LANES>(out, dout, place, place.t < T);
    if (place.t >= rows) return;
    if (threadIdx.x % ROW_LANES == 0) {
        const float log_sum = place.t < T ? lse[place.number(NH, T)] : minus_infinity();
        const bool sees_keys = log_sum != minus_infinity();
        reinterpret_cast<RowSums*>(row_sums)[place.number(NH, rows)] =
            RowSums{sees_keys ? log_sum * LOG2_E : -minus_infinity(), sees_keys ? delta : 0.0f};
    }
    float4* const sums = reinterpret_cast<float4*>(dq_accumulator + place.number(NH, rows) * HS);
#pragma unroll
    for (int i = threadIdx.x % ROW_LANES; i < HS / 4; i += ROW_LANES) sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/// dK and dV of BLOCK_N keys from `key` on, summed over all queries that see them and over the query heads that share
/// them; adds their share of dQ.
__device__ __forceinline__ void key_gradients_of(const Operands& in, const View<element, 4>& dk,
                                                 const View<element, 4>& dv, float* dq_accumulator, int batch,
                                                 int head_kv, int key, unsigned char* smem)
{
    unsigned char* const k_tile = smem;
    unsigned char* const v_tile = k_tile + Tile::bytes(BLOCK_N);
    unsigned char* const q_tiles = v_tile + Tile::bytes(BLOCK_N);
    unsigned char* const dout_tiles = q_tiles + STAGES * Tile::bytes(BLOCK_M);
    unsigned char* const ds_tile = dout_tiles + STAGES * Tile::bytes(BLOCK_M);
    unsigned char* const sums_tiles = ds_tile + GradientTile::bytes(BLOCK_N);

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
    const bool vectors_q = allows_vectors<8>(in.q);
    const bool vectors_dout = allows_vectors<8>(in.dout);
    const auto copy = [&](int head, int tile, int stage) {
        if (head < head_begin + heads) {
            const int query = first_query(tile);
            const int offset = stage * Tile::bytes(BLOCK_M);
            copy_rows<BLOCK_M>(copier, q_tiles + offset, in.q, batch, head, query, in.T, vectors_q);
            copy_rows<BLOCK_M>(copier, dout_tiles + offset, in.dout, batch, head, query, in.T, vectors_dout);
            const SharedAddress sums = shared_address(sums_tiles + stage * BLOCK_M * sizeof(RowSums));
            for (int i = threadIdx.x; i < BLOCK_M / 2; i += THREADS)  // two queries a copy
                copy_async(sums + 16 * i, in.sums_of(batch, head, query + 2 * i), true);
        }
        commit_copies();
    };
    const auto copy_after = [&](int head, int tile, int stage) {
        const bool last = tile + 1 == tiles;
        copy(last ? head + 1 : head, last ? 0 : tile + 1, stage);
    };

    copy_rows<BLOCK_N>(copier, k_tile, in.k, batch, head_kv, key, in.T_kv, allows_vectors<8>(in.k));
    copy_rows<BLOCK_N>(copier, v_tile, in.v, batch, head_kv, key, in.T_kv, allows_vectors<8>(in.v));
    commit_copies();
    if (tiles > 0) copy(head_begin, 0, 0);

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int warp_row = warp * 16 * OWN_TILES;  // this warp's first key in the block
    const int rows_first = ldmatrix_rows_first<Tile>();  // this lane's row in a tile, for ldmatrix
    const int cols_first = ldmatrix_cols_first<Tile>();
    OwnRows<Tile, OWN_TILES, K_IN_REGISTERS> keys(shared_address(k_tile) + Tile::bytes(warp_row) + rows_first);
    OwnRows<Tile, OWN_TILES, V_IN_REGISTERS> values(shared_address(v_tile) + Tile::bytes(warp_row) + rows_first);
    OwnGradients dk_rows = {};
    OwnGradients dv_rows = {};

    // Hides the queries that do not see a key, in a chunk from `query` on.
    const auto mask = [&](Products& s, int query) {
#pragma unroll
        for (int m = 0; m < OWN_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int own = key + warp_row + 16 * m + 8 * half + lane / 4;
                const int hidden = own < in.T_kv ? scores.first_query(own) - query : NONE_SEEN;
#pragma unroll
                for (int n = 0; n < C_TILES; ++n)
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (8 * n + lane % 4 * 2 + e < hidden) s[m][n][2 * half + e] = minus_infinity();
            }
    };

    // Writes P or dS of 16 queries from `column` of the tile on.
    const int pair_lane = computed_once(GradientTile::offset(lane / 4, 0) + lane % 4 * 4);
    const auto write_pairs = [&](unsigned char* tile, const uint32_t (&a)[OWN_TILES][4], int column) {
#pragma unroll
        for (int m = 0; m < OWN_TILES; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                *reinterpret_cast<uint32_t*>(tile + GradientTile::bytes(warp_row + 16 * m + i % 2 * 8) +
                                             GradientTile::advance(pair_lane, column / 8 + i / 2)) = a[m][i];
    };

    // dQ of the tile: this warp's queries and columns, all keys of the block.
    const int dq_row = warp / DQ_WARPS_D * 16 * DQ_M_TILES;
    const int dq_col = warp % DQ_WARPS_D * 8 * DQ_D_TILES;
    const SharedAddress ds_column =
        shared_address(ds_tile) + GradientTile::advance(ldmatrix_cols_first<GradientTile>(), dq_row / 8);
    const auto add_dq = [&](int head, int query) {
        float dq_part[DQ_M_TILES][DQ_D_TILES][4] = {};
#pragma unroll
        for (int own = 0; own < BLOCK_N; own += 16) {
            uint32_t a[DQ_M_TILES][4];
#pragma unroll
            for (int m = 0; m < DQ_M_TILES; ++m)
                ldmatrix_transposed(a[m], GradientTile::advance(ds_column, 2 * m) + GradientTile::bytes(own));
#pragma unroll
            for (int d = 0; d < DQ_D_TILES; d += 2) {
                uint32_t b[4];
                ldmatrix_transposed(
                    b, shared_address(k_tile) + Tile::advance(rows_first, dq_col / 8 + d) + Tile::bytes(own));
#pragma unroll
                for (int m = 0; m < DQ_M_TILES; ++m) {
                    mma_16x8x16<element>(dq_part[m][d], a[m], b[0], b[1]);
                    mma_16x8x16<element>(dq_part[m][d + 1], a[m], b[2], b[3]);
                }
            }
        }
        const long long row = (static_cast<long long>(batch) * in.NH + head) * in.rows + query + dq_row;
        float* const sums = dq_accumulator + row * HS + dq_col * 16;
#pragma unroll
        for (int m = 0; m < DQ_M_TILES; ++m)
#pragma unroll
            for (int d = 0; d < DQ_D_TILES; ++d) FragmentSums::add(sums + m * 16 * HS + d * 128, dq_part[m][d]);
    };

    int stage = 0;
    const auto attend = [&](int head, int tile, auto masked) {
        const int query = first_query(tile);
        wait_for_copies<0>();
        __syncthreads();  // the step's tiles are there, and those of the step before have been read
        copy_after(head, tile, stage ^ 1);
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
        const auto pass_on = [&](const Products& p, const Products& ds, int first) {  // dV += P^T dO, dK += dS^T Q
#pragma unroll
            for (int i = 0; i < CHUNK; i += 16) {
                uint32_t a[OWN_TILES][4];
                as_operand<element>(a, p, i / 8);
                multiply_over_rows<element, Tile>(dv_rows, a, dout_tile + Tile::bytes(first + i) + rows_first);
            }
#pragma unroll
            for (int i = 0; i < CHUNK; i += 16) {
                uint32_t a[OWN_TILES][4];
                as_operand<element>(a, ds, i / 8);
                write_pairs(ds_tile, a, first + i);
                multiply_over_rows<element, Tile>(dk_rows, a, q_tile + Tile::bytes(first + i) + rows_first);
            }
        };
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
        add_dq(head, query);
    };

#pragma unroll 1
    for (int head = head_begin; head < head_begin + heads; ++head) {
#pragma unroll 1
        for (int tile = 0; tile < tiles; ++tile)
            attend(head, tile, tile < masked_tiles);
    }

    wait_for_copies<0>();
    __syncthreads();  // K and V have been read; the gradients take their place
    const int own = key + warp_row;
    write_own_rows<element, Tile>(matrix_of(dk, batch, head_kv) + own * dk.stride[2], dk, in.T_kv - own, dk_rows,
                                  in.scale, k_tile + Tile::bytes(warp_row));
    write_own_rows<element, Tile>(matrix_of(dv, batch, head_kv) + own * dv.stride[2], dv, in.T_kv - own, dv_rows,
                                  1.0f, v_tile + Tile::bytes(warp_row));
}

/// dK and dV, and dQ added up in fp32; a block is BLOCK_N keys of a key head.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
key_gradients(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> dout,
              const float* __restrict__ row_sums, View<element, 4> dk, View<element, 4> dv,
              float* __restrict__ dq_accumulator, int NH, int NH_kv, int T, int T_kv, int rows, float scale)
{
    extern __shared__ __align__(128) unsigned char smem[];
    const Operands in = {q, k, v, dout, reinterpret_cast<const RowSums*>(row_sums), NH, NH_kv, T, T_kv, rows, scale};
    const int batch = blockIdx.x / NH_kv;
    const int head_kv = blockIdx.x % NH_kv;
    const int block = blockIdx.y;  // the first keys have the most queries
    key_gradients_of(in, dk, dv, dq_accumulator, batch, head_kv, block * BLOCK_N, smem);
}

/// Scales and rounds the finished dQ, ROW_LANES threads a row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
round_query_gradient(const float* __restrict__ dq_accumulator, View<element, 4> dq, int NH, int T, int rows,
                     float scale)
{
    const RowPlace place = row_of_thread<ROW_THREADS, ROW_LANES>();
    if (place.t >= T) return;
    const bool vectors = allows_vectors<8>(dq);
    const float* const sums = dq_accumulator + (place.number(NH, rows) - place.t % 16) * HS;
    for (int col = threadIdx.x % ROW_LANES * 8; col < HS; col += ROW_LANES * 8) {
        float x[8];
        FragmentSums::read(x, sums + col * 16, place.t % 16);
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] *= scale;
        store_row(row_of(dq, place), dq.stride[3], col, x, vectors);
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
// launch row_delta grid=(32, 12, 4) block=(256, 1, 1) smem=0 (out, dout, lse, row_sums, dq_accumulator, NH, T, ROWS)
// launch key_gradients grid=(48, 8, 1) block=(128, 1, 1) smem=82944 (q, k, v, dout, row_sums, dk, dv, dq_accumulator, NH, NH_kv, T, T_kv, ROWS, scale)
// launch round_query_gradient grid=(32, 12, 4) block=(256, 1, 1) smem=0 (dq_accumulator, dq, NH, T, ROWS, scale)
