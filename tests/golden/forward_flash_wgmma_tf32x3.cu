// autotune: forward/flash_wgmma_tf32x3: tiled attention of fp32 on Hopper's tensor cores (wgmma), each product as three (3xTF32); K and V are split once, in a kernel of its own
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp32 causal=1 layout=bthd
// configuration: BLOCK_M=192 BLOCK_N=64 STAGES=2 SMALL=bf16 Q_IN=shared Q_ROUNDS=1 PARTS=1 OVERLAP=False PING_PONG=False HEADS_AT_ONCE=4 SPARED_REGISTERS=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          ee67152887efe465

#include "common/attention/exact.cuh"
#include "common/attention/online_accumulators.cuh"
#include "common/attention/ring.cuh"
#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/attention/work_order.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"
#include "common/warp/wide_operands.cuh"

using element = float;

/// Where the operands of Q come from: big parts from shared memory, small ones computed anew for every tile of keys, or
/// from a tile of their own, or kept in registers; or both in registers.
enum class QueriesIn { SHARED, SHARED_SPLIT, SMALL_KEPT, REGISTERS };

constexpr int HS = 64;
constexpr int HS_V = 64;          // of V and O
constexpr bool CAUSAL = true;
constexpr int BLOCK_M = 192;       // queries a block, 64 a warp group
constexpr int BLOCK_N = 64;        // keys a step
constexpr int STAGES = 2;          // tiles of K in shared memory, and of V
constexpr SmallParts SMALL = SmallParts::BF16;
constexpr QueriesIn Q_IN = QueriesIn::SHARED;
constexpr int Q_ROUNDS = 1;        // in which small parts of Q are computed anew
constexpr int PARTS = 1;           // in which P V is computed, columns of O
constexpr bool OVERLAP = false;     // a tile's scores are issued before P V of the one before
constexpr bool PING_PONG = false;   // warp groups take turns: one's products beside the others' softmax
constexpr int HEADS_AT_ONCE = 4;   // whose tiles follow one another, to find keys in L2; 0: all

constexpr int WARP_GROUPS = BLOCK_M / 64;  // of consumers
constexpr int CONSUMERS = 2 * BLOCK_M;     // threads
constexpr int THREADS = CONSUMERS + 128;   // one warp loads, but whole groups hand registers over
constexpr int SPLIT_THREADS = 256;
constexpr int CONSUMER_REGISTERS = WARP_GROUPS == 1 ? 256 : WARP_GROUPS == 2 ? 240 : WARP_GROUPS == 3 ? 160 : 112;
constexpr int PRODUCER_REGISTERS = WARP_GROUPS == 1 ? 56 : WARP_GROUPS == 2 ? 24 : 32;
constexpr int Q_TILES = Q_IN == QueriesIn::REGISTERS ? 0 : Q_IN == QueriesIn::SHARED_SPLIT ? 2 : 1;  // big parts, small ones
constexpr int K_STEPS = HS / 8;
constexpr int ROUND_STEPS = K_STEPS / Q_ROUNDS;
constexpr int V_STEPS = BLOCK_N / 8;
constexpr int PART = HS_V / PARTS;

// 8 floats are 16 elements of 16 bits wide. Of K and V each tile is two: big parts, then small ones.
using Rows = SlabTile<64, 2 * HS>;
using Keys = SlabTile<BLOCK_N, 2 * HS>;
using Values = SlabTile<HS_V, 2 * BLOCK_N>;  // transposed: rows are columns of V
constexpr int KEY_BYTES = 2 * Keys::BYTES;
constexpr int VALUE_BYTES = 2 * Values::BYTES;
using Order = WorkOrder<HEADS_AT_ONCE, CAUSAL>;
using Place = RingPlace<STAGES>;

enum NamedBarrier { TURN = 1, MEET = TURN + WARP_GROUPS };  // one each a warp group

/// A tile in device memory, K's parts and V's, as they are to lie in shared memory.
__device__ __forceinline__ unsigned char* tile_at(float* tiles, int matrix, int count, int tile)
{
    return reinterpret_cast<unsigned char*>(tiles) +
           (static_cast<long long>(matrix) * count + tile) * (KEY_BYTES + VALUE_BYTES);
}

/// Lays out a tile's floats as both parts of operand B; at(number, row, group, x) gets 8 of them. Two neighbours compute
/// the same and write half of it each, which makes whole sectors of 32 bytes.
template <class Tile, class At>
__device__ __forceinline__ void split_tile(unsigned char* tile, const At& at)
{
    constexpr int GROUPS = Tile::SLABS * Tile::SLAB / 16;
#pragma unroll 2
    for (int i = threadIdx.x; i < 2 * Tile::ROWS * GROUPS; i += SPLIT_THREADS) {
        float x[8] = {};
        int row, group;
        at(i / 2, row, group, x);
        const WideLine<SMALL> line(x);
        Vector<uint32_t, 4> big, small;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            big.at[e] = i % 2 ? line.big[1][e] : line.big[0][e];
            small.at[e] = i % 2 ? line.small[1][e] : line.small[0][e];
        }
        unsigned char* const to = tile + Tile::offset(row, 16 * group + 8 * (i % 2));
        *reinterpret_cast<Vector<uint32_t, 4>*>(to) = big;
        *reinterpret_cast<Vector<uint32_t, 4>*>(to + Tile::BYTES) = small;
    }
}

/// Splits K and V and turns V round: blocks with even numbers have a tile of K, the others one of V. What is beyond the
/// last key is 0.
extern "C" __global__ void __launch_bounds__(SPLIT_THREADS)
split_keys(View<element, 4> k, View<element, 4> v, float* __restrict__ tiles, int NH_kv, int T_kv, int count)
{
    const int number = blockIdx.x / 2;
    const int matrix = number / count;
    const int tile = number - matrix * count;
    const int batch = matrix / NH_kv;
    const int head = matrix - batch * NH_kv;
    const int first = tile * BLOCK_N;
    unsigned char* const to = tile_at(tiles, matrix, count, tile);
    if (blockIdx.x % 2 == 0) {
        const bool vectors = allows_vectors<4>(k);
        const element* const keys = matrix_of(k, batch, head);
        split_tile<Keys>(to, [&](int number, int& row, int& group, float (&x)[8]) {
            constexpr int GROUPS = Keys::SLABS * Keys::SLAB / 16;
            row = number / GROUPS;
            group = number % GROUPS;
            if (first + row < T_kv && group < K_STEPS)
                load_row(keys + (first + row) * k.stride[2], k.stride[3], 8 * group, x, vectors);
        });
    } else {
        const element* const values = matrix_of(v, batch, head);
        split_tile<Values>(to + KEY_BYTES, [&](int number, int& row, int& group, float (&x)[8]) {
            row = number % HS_V;  // neighbours read neighbouring columns of V
            group = number / HS_V;
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                const int key = first + 8 * group + e;
                if (key < T_kv) x[e] = values[key * v.stride[2] + row * v.stride[3]];
            }
        });
    }
}

/// A block's shared memory: tiles of Q, K and V, then the barriers.
struct Shared {
    SharedAddress q, k, v;
    RingBarriers<STAGES> keys, values;

    __device__ __forceinline__ Shared(SharedAddress start)
        : q(start), k(q + WARP_GROUPS * Q_TILES * Rows::BYTES), v(k + STAGES * KEY_BYTES), keys{v + STAGES * VALUE_BYTES},
          values{keys.first + RingBarriers<STAGES>::BYTES}
    {
    }

    __device__ __forceinline__ void init() const
    {
        keys.init(CONSUMERS / 32);
        values.init(CONSUMERS / 32);
        fence_mbarrier_init();
    }
};

/// What the block works on.
struct Problem {
    Scores<CAUSAL> scores;
    int batch, head, key_head;
    int first;  // query
    int tiles;  // of keys that any of its queries sees

    /// Tiles of keys that queries before `end` see, and those that `query` sees completely.
    __device__ __forceinline__ int tiles_until(int end) const
    {
        return (scores.keys_seen(min(end, scores.T) - 1) + BLOCK_N - 1) / BLOCK_N;
    }
    __device__ __forceinline__ int full_tiles(int query) const { return scores.keys_seen(query) / BLOCK_N; }
};

/// The producer, one thread: loads what the consumers will want, in their order, as soon as there is room. `end`: of the
/// tiles that are wanted, in device memory.
__device__ __forceinline__ void produce(const Shared& shared, int tiles, const unsigned char* from)
{
    Place keys, values;
    const auto load_keys = [&](int tile) {
        shared.keys.begin_fill(keys, KEY_BYTES);
        bulk_load(shared.k + keys.stage * KEY_BYTES, from + static_cast<long long>(tile) * (KEY_BYTES + VALUE_BYTES),
                  KEY_BYTES, shared.keys.full(keys));
        keys.advance();
    };
    const auto load_values = [&](int tile) {
        shared.values.begin_fill(values, VALUE_BYTES);
        bulk_load(shared.v + values.stage * VALUE_BYTES,
                  from + static_cast<long long>(tile) * (KEY_BYTES + VALUE_BYTES) + KEY_BYTES, VALUE_BYTES,
                  shared.values.full(values));
        values.advance();
    };
    if (tiles > 0) load_keys(tiles - 1);
#pragma unroll 1
    for (int tile = tiles - 2; tile >= 0; --tile) {  // a tile's scores come before its predecessor's values
        load_keys(tile);
        load_values(tile + 1);
    }
    if (tiles > 0) load_values(0);
}

/// A warp group's 64 queries as operands A, 8 columns a step.
struct Queries {
    static constexpr bool BIG_HELD = Q_IN == QueriesIn::REGISTERS;
    static constexpr bool SMALL_HELD = Q_IN != QueriesIn::SHARED_SPLIT;

    SharedAddress tile;      // big parts, and small ones in the tile after it
    SharedAddress lane_row;  // for ldmatrix
    uint32_t held_big[BIG_HELD ? K_STEPS : 1][4];
    uint32_t held_small[SMALL_HELD ? ROUND_STEPS : 1][4];

    /// `row`: the thread's first query, `meeting`: the group's barrier.
    __device__ __forceinline__ Queries(SharedAddress q, const View<element, 4>& tensor, const Problem& problem, int row,
                                       int meeting)
        : tile(q), lane_row(q + Rows::offset(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 16, threadIdx.x % 32 / 16 * 8))
    {
        const bool vectors = allows_vectors<2>(tensor);
        const element* const matrix = matrix_of(tensor, problem.batch, problem.head);
#pragma unroll
        for (int step = 0; step < K_STEPS; ++step) {
            uint32_t bits[4] = {};
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                if (row + 8 * r >= problem.scores.T) continue;
                float pair[2];
                load_row(matrix + (row + 8 * r) * tensor.stride[2], tensor.stride[3], 8 * step + accumulator_col(), pair,
                         vectors);
                bits[r] = __float_as_uint(pair[0]);
                bits[2 + r] = __float_as_uint(pair[1]);
            }
            if constexpr (!BIG_HELD) stmatrix(place(lane_row, step), bits);
            if constexpr (BIG_HELD) {
#pragma unroll
                for (int i = 0; i < 4; ++i) held_big[step][i] = bits[i];
            }
            if constexpr (Q_IN == QueriesIn::SHARED_SPLIT) {
                uint32_t small[4];
                take_small<SMALL>(small, bits);
                stmatrix(place(lane_row, step) + Rows::BYTES, small);
            } else if constexpr (Q_IN != QueriesIn::SHARED) {
                take_small<SMALL>(held_small[step], bits);
            }
        }
        if constexpr (!BIG_HELD) {
            fence_async_shared();
            named_barrier<128>(meeting);
        }
    }

    __device__ __forceinline__ static SharedAddress place(SharedAddress row, int step)
    {
        constexpr int PER_SLAB = Rows::SLAB / 16;
        return (row ^ step % PER_SLAB * 32) + step / PER_SLAB * Rows::SLAB_BYTES;
    }

    /// Before the scores of a tile are issued, and after those before are there: small parts of a round's steps.
    __device__ __forceinline__ void prepare(int round)
    {
        if constexpr (Q_IN == QueriesIn::SHARED) {
            const SharedAddress row = lane_row + opaque(0);  // else all its places are kept in registers
#pragma unroll
            for (int step = 0; step < ROUND_STEPS; ++step) {
                uint32_t bits[4];
                ldmatrix(bits, place(row, round * ROUND_STEPS + step));
                take_small<SMALL>(held_small[step], bits);
            }
        }
    }

    /// Of the tiles.
    __device__ __forceinline__ uint64_t descriptor() const { return settled(Rows::rows_by_k(tile)); }

    __device__ __forceinline__ decltype(auto) big(uint64_t from, int step) const
    {
        if constexpr (BIG_HELD)
            return (held_big[step]);
        else
            return advance(from, Rows::along_columns(step));
    }
    __device__ __forceinline__ decltype(auto) small(uint64_t from, int step) const
    {
        if constexpr (SMALL_HELD)
            return (held_small[step % ROUND_STEPS]);
        else
            return advance(from, Rows::BYTES + Rows::along_columns(step));
    }
};

/// S = Q K^T, as far as the small products of a round go, and after the last one all of it. One group of wgmmas.
__device__ __forceinline__ void multiply_keys(float (&s)[BLOCK_N / 2], const Queries& q, uint64_t k, int round)
{
    const uint64_t from = q.descriptor();
#pragma unroll
    for (int step = round * ROUND_STEPS; step < (round + 1) * ROUND_STEPS; ++step)
        multiply_small<SMALL, BLOCK_N>(s, q.big(from, step), q.small(from, step), advance(k, Keys::along_columns(step)),
                                       advance(k, Keys::BYTES + Keys::along_columns(step)), step == 0);
    if (round == Q_ROUNDS - 1) {
        order_products<SMALL>();
#pragma unroll
        for (int step = 0; step < K_STEPS; ++step)
            multiply_big<BLOCK_N>(s, q.big(from, step), advance(k, Keys::along_columns(step)));
    }
    wgmma_commit();
}

/// P of a tile as operands A, 8 keys a step.
struct Weights {
    uint32_t big[V_STEPS][4];
    uint32_t small[V_STEPS][4];

    __device__ __forceinline__ void split(const float (&p)[BLOCK_N / 2])
    {
#pragma unroll
        for (int step = 0; step < V_STEPS; ++step) {
            uint32_t bits[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float weight = p[4 * step + i % 2 * 2 + i / 2];
                bits[i] = __float_as_uint(weight);
                // What hardware ignores anyway: else ptxas would move S to here while scores are under way (C7513).
                big[step][i] = OVERLAP ? tf32_truncated(weight) : bits[i];
            }
            take_small<SMALL>(small[step], bits);
        }
    }
};

/// Columns `number` * PART on of P V, from 0 on: tensor cores truncate their sums, and a tile's product is added to O in fp32.
__device__ __forceinline__ void multiply_values(float (&part)[PART / 2], const Weights& p, uint64_t v, int number)
{
    const uint64_t rows = advance(v, number * PART * Values::LINE);
#pragma unroll
    for (int step = 0; step < V_STEPS; ++step)
        multiply_small<SMALL, PART>(part, p.big[step], p.small[step], advance(rows, Values::along_columns(step)),
                                    advance(rows, Values::BYTES + Values::along_columns(step)), step == 0);
    order_products<SMALL>();
#pragma unroll
    for (int step = 0; step < V_STEPS; ++step)
        multiply_big<PART>(part, p.big[step], advance(rows, Values::along_columns(step)));
    wgmma_commit();
}

/// A warp group of consumers: 64 queries of the block's.
struct Consumer {
    const Shared& shared;
    const Problem& problem;
    int group;
    uint64_t k, v;  // operands
    int none;       // 0, which the compiler does not know
    Place keys, values;

    __device__ __forceinline__ Consumer(const Shared& shared_, const Problem& problem_)
        : shared(shared_), problem(problem_), group(__shfl_sync(ALL_LANES, threadIdx.x / 128, 0)),
          k(Keys::rows_by_k(shared.k)), v(Values::rows_by_k(shared.v)), none(problem.scores.T >> 31)
    {
        if (PING_PONG && group == WARP_GROUPS - 1) named_barrier_arrive<256>(TURN);  // for the first group's first
    }

    __device__ __forceinline__ void take_turn() const
    {
        if constexpr (PING_PONG) named_barrier<256>(TURN + group);
    }
    __device__ __forceinline__ void pass_turn() const
    {
        if constexpr (PING_PONG) named_barrier_arrive<256>(TURN + (group + 1) % WARP_GROUPS);
    }

    __device__ __forceinline__ uint64_t key_tile() const { return settled(advance(k, keys.stage * KEY_BYTES)); }
    __device__ __forceinline__ uint64_t value_tile() const { return settled(advance(v, values.stage * VALUE_BYTES)); }
    __device__ __forceinline__ void release_keys()
    {
        shared.keys.release(keys);
        keys.advance();
    }
    __device__ __forceinline__ void release_values()
    {
        shared.values.release(values);
        values.advance();
    }

    /// The group's rows, from the last tile of keys to the first. Whether the thread's results are finite.
    __device__ __forceinline__ bool attend(const View<element, 4>& q, const View<element, 4>& out, float* lse, int NH)
    {
        const Scores<CAUSAL>& scores = problem.scores;
        const int group_row = problem.first + 64 * group;
        const int own_tiles = group_row < scores.T ? problem.tiles_until(group_row + 64) : 0;
        const int full_tiles = problem.full_tiles(group_row);
        const int row = group_row + accumulator_row();
        OnlineRow rows[2];
        float o[HS_V / 2], part[PART / 2];
        float s[BLOCK_N / 2];
        float factor[2];
        Weights p;
#pragma unroll
        for (int i = 0; i < HS_V / 2; ++i) o[i] = 0.0f;
#pragma unroll
        for (int i = 0; i < PART / 2; ++i) part[i] = 0.0f;
        int tile = problem.tiles - 1;
        Queries queries(shared.q + group * Q_TILES * Rows::BYTES, q, problem, row, MEET + group);

        const auto soften = [&](auto masked) {
            if (masked) {
                const int first = group_row + opaque(accumulator_row()), key = tile * BLOCK_N + accumulator_col();
                hide_beyond(s, {scores.beyond(first, key), scores.beyond(first + 8, key)});
            }
            float next[2];
            soften_accumulators(s, rows, next, scores);
            return make_float2(next[0], next[1]);
        };
        const auto issue_keys = [&] {
#pragma unroll
            for (int round = 0; round < Q_ROUNDS; ++round) {
                if (round > 0) wgmma_wait<0>(s, queries.held_small);
                if constexpr (!OVERLAP) queries.prepare(round);
                wgmma_fence(s, queries.held_big, queries.held_small);
                multiply_keys(s, queries, key_tile(), round);
            }
        };
        const auto issue_values = [&](int number) {
            wgmma_fence(part, p.big, p.small);
            multiply_values(part, p, value_tile(), number);
        };
        const auto finish_values = [&] {  // the first part has been issued
#pragma unroll
            for (int number = 0; number < PARTS; ++number) {
                if (number > 0) issue_values(number);
                wgmma_wait<0>(part);
                if (number == PARTS - 1) release_values();
#pragma unroll
                for (int i = 0; i < PART / 2; ++i) {
                    float& sum = o[number * (PART / 2) + i];
                    sum = fmaf(sum, factor[i / 2 % 2], part[i]);
                }
            }
        };

#pragma unroll 1
        for (; tile >= own_tiles; --tile) {  // the block's, but not this group's
            shared.keys.wait_full(keys);
            release_keys();
            if (tile > 0) {
                take_turn();
                pass_turn();
            }
            shared.values.wait_full(values);
            release_values();
        }
        if (tile >= 0) {
            if constexpr (OVERLAP) queries.prepare(0);
            shared.keys.wait_full(keys);
            issue_keys();
            wgmma_wait<0>(s);
            release_keys();
            const float2 first = soften(tile >= full_tiles);
            factor[0] = first.x, factor[1] = first.y;
            p.split(s);
            if (--tile >= 0) shared.keys.wait_full(keys);

            // Scores of this tile, and O of the one before.
            const auto step = [&](auto masked) {
                if constexpr (OVERLAP) queries.prepare(0);
                take_turn();
                if constexpr (OVERLAP) {
                            wgmma_fence(part, p.big, p.small);  // before scores are under way: nothing may touch registers then
                    issue_keys();
                    shared.values.wait_full(values);
                    wgmma_fence();
                    multiply_values(part, p, value_tile(), 0);
                } else {
                    shared.values.wait_full(values);
                    issue_values(0);
                    finish_values();
                    issue_keys();
                }
                pass_turn();
                wgmma_wait<OVERLAP>(s);
                release_keys();
                const float2 next = soften(masked);
                // The assembler would leave exponentials for after the wait for O. This branch needs the sums, and so all.
                const int always = none & (__float_as_int(rows[0].sum) ^ __float_as_int(rows[1].sum));
                if (tile > always) shared.keys.wait_full({keys.stage, keys.parity ^ always});
                if constexpr (OVERLAP) finish_values();
                factor[0] = next.x, factor[1] = next.y;
                p.split(s);
            };
#pragma unroll 1
            for (; tile >= full_tiles; --tile) step(Known<true>());
#pragma unroll 1
            for (; tile >= 0; --tile) step(Known<false>());
            shared.values.wait_full(values);
            issue_values(0);
            finish_values();
        }
        return store(out, lse, NH, row, rows, o);
    }

    /// Writes the thread's rows of O and their log-sum-exp. Whether they are finite.
    __device__ __forceinline__ bool store(const View<element, 4>& out, float* lse, int NH, int row, OnlineRow (&rows)[2],
                                          const float (&o)[HS_V / 2]) const
    {
        const Scores<CAUSAL>& scores = problem.scores;
        const bool vectors = allows_vectors<2>(out);
        element* const matrix = matrix_of(out, problem.batch, problem.head);
        float zero = 0.0f;  // 0 times what is written
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int query = row + 8 * r;
            rows[r].sum = reduce_lanes<Sum, 1, 4>(rows[r].sum);
            if (query >= scores.T) continue;
            const bool sees_keys = scores.keys_seen(query) > 0;
            float factor = sees_keys ? 1.0f / rows[r].sum : 0.0f;
            if (sees_keys && fabsf(rows[r].maximum) > LARGEST_SCORE) factor = not_a_number();
            if (threadIdx.x % 4 == 0)
                lse[(static_cast<long long>(problem.batch) * NH + problem.head) * scores.T + query] =
                    sees_keys ? scores.log_sum_exp(rows[r]) : minus_infinity();
            element* const to = matrix + query * out.stride[2];
#pragma unroll
            for (int n = 0; n < HS_V / 8; ++n) {
                const float both[2] = {o[4 * n + 2 * r] * factor, o[4 * n + 2 * r + 1] * factor};
                store_row(to, out.stride[3], 8 * n + accumulator_col(), both, vectors);
                zero = fmaf(0.0f, both[0], fmaf(0.0f, both[1], zero));
            }
        }
        return zero == 0.0f;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ tiles, float* __restrict__ lse, int NH, int group, int T, int T_kv, float scale,
                  int matrices, int row_tiles, int key_tiles, long long order_inverse)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const Shared shared(shared_address(smem));
    const Order order = {row_tiles, matrices, order_inverse};
    const Work work = order.at(blockIdx.x);
    // Uniform for the compiler, too.
    const int matrix = __shfl_sync(ALL_LANES, work.matrix, 0), row_tile = __shfl_sync(ALL_LANES, work.tile, 0);
    const int batch = matrix / NH, head = matrix - batch * NH;
    Problem problem = {Scores<CAUSAL>(T, T_kv, scale), batch, head, head / group, row_tile * BLOCK_M, 0};
    problem.tiles = problem.tiles_until(problem.first + BLOCK_M);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {
        release_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS)
            produce(shared, problem.tiles, tile_at(tiles, batch * (NH / group) + problem.key_head, key_tiles, 0));
    } else {
        take_registers<CONSUMER_REGISTERS>();
        const bool finite = Consumer(shared, problem).attend(q, out, lse, NH);
        __syncwarp();  // all of the warp have written
        if (__all_sync(ALL_LANES, finite)) return;
        const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k), read_only(v), NH, group,
                                                               problem.scores};
        const int first = problem.first + opaque(threadIdx.x) / 32 * 16;  // of the warp
#pragma unroll 1
        for (int query = first; query < min(first + 16, T); ++query) exact.mend(out, lse, batch, head, query);
    }
}

// buffer q: 3145728 fp32, input
// buffer k: 3145728 fp32, input
// buffer v: 3145728 fp32, input
// buffer out: 3145728 fp32, output
// buffer lse: 49152 fp32, output
// buffer tiles: 12582912 fp32, workspace
// launch split_keys grid=(1536, 1, 1) block=(256, 1, 1) smem=0 (k, v, tiles, NH_kv, T_kv, TILES_N)
// launch attention_forward grid=(288, 1, 1) block=(512, 1, 1) smem=180288 (q, k, v, out, tiles, lse, NH, NH // NH_kv, T, T_kv, scale, QUERY_HEADS, TILES_M, TILES_N, ceil_div(1099511627776, TILES_M if HEADS_AT_ONCE else QUERY_HEADS))
