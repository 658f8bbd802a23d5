// autotune: forward/flash_wgmma: tiled attention with an online softmax on Hopper's tensor cores (wgmma), tiles by TMA, warps specialised
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_M=256 BLOCK_N=64 STAGES=4 PING_PONG=True OUT_APART=True PERSISTENT=True MIN_BLOCKS=1 PACK_HEADS=False HEADS_AT_ONCE=0 SPLIT=1 SPARED_REGISTERS=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          41d2ebc31851fea9

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/exact.cuh"
#include "common/attention/ring.cuh"
#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/attention/work_order.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int HS_V = 64;              // of V and O
constexpr bool CAUSAL = true;
constexpr int BLOCK_M = 256;           // rows a block, of queries or pairs of query and head; 64 a warp group
constexpr int BLOCK_N = 64;           // keys a step
constexpr int STAGES = 4;              // tiles of K in shared memory, and of V
constexpr bool PING_PONG = true;       // warp groups take turns: one's products beside the others' softmax
constexpr bool OUT_APART = true;       // O has a tile of its own to leave by, and the next Q comes early
constexpr bool PERSISTENT = true;      // a block does one tile of rows after another
constexpr int MIN_BLOCKS = 1;          // a multiprocessor
constexpr bool PACK_HEADS = false;     // a block has the queries of all heads that share a key head
constexpr int HEADS_AT_ONCE = 0;       // whose tiles follow one another, to find keys in L2; 0: all

constexpr int WARP_GROUPS = BLOCK_M / 64;      // of consumers
constexpr int CONSUMERS = 2 * BLOCK_M;         // threads
constexpr int PRODUCER_WARPS = MIN_BLOCKS == 1 ? 4 : 1;  // one would do, but whole groups hand registers over
constexpr int THREADS = CONSUMERS + 32 * PRODUCER_WARPS;
constexpr int COLS = (HS + 15) / 16 * 16;      // TMA fills those beyond HS with zeros
constexpr int V_COLS = (HS_V + 15) / 16 * 16;
constexpr int CONSUMER_REGISTERS = WARP_GROUPS == 1 ? 256 : WARP_GROUPS == 2 ? 240 : WARP_GROUPS == 3 ? 160 : 112;
constexpr int PRODUCER_REGISTERS = WARP_GROUPS == 1 ? 56 : WARP_GROUPS == 2 ? 24 : 32;

using Rows = SlabTile<64, COLS>;       // a warp group's, of Q
using OutRows = SlabTile<64, V_COLS>;  // and of O
using Keys = SlabTile<BLOCK_N, COLS>;
using Values = SlabTile<BLOCK_N, V_COLS>;
using Order = WorkOrder<HEADS_AT_ONCE, CAUSAL>;
using Place = RingPlace<STAGES>;

enum NamedBarrier { TURN = 1, MEET = TURN + WARP_GROUPS };  // one each a warp group

/// A block's shared memory: tiles of Q, K and V, perhaps of O, then the barriers.
struct Shared {
    static constexpr int QUERY_BYTES = OUT_APART || Rows::BYTES > OutRows::BYTES ? Rows::BYTES : OutRows::BYTES;
    static constexpr int OUT_BYTES = OUT_APART ? OutRows::BYTES : QUERY_BYTES;  // a warp group, where it has Q and O

    SharedAddress q, k, v, out;
    RingBarriers<1> queries;  // of the first warp group; the others' follow
    RingBarriers<STAGES> keys, values;

    __device__ __forceinline__ Shared(SharedAddress start)
        : q(start), k(q + WARP_GROUPS * QUERY_BYTES), v(k + STAGES * Keys::BYTES),
          out(OUT_APART ? v + STAGES * Values::BYTES : q),
          queries{v + STAGES * Values::BYTES + OUT_APART * WARP_GROUPS * OUT_BYTES},
          keys{queries.first + WARP_GROUPS * RingBarriers<1>::BYTES}, values{keys.first + RingBarriers<STAGES>::BYTES}
    {
    }

    __device__ __forceinline__ RingBarriers<1> queries_of(int group) const
    {
        return {queries.first + group * RingBarriers<1>::BYTES};
    }

    __device__ __forceinline__ void init() const
    {
        for (int group = 0; group < WARP_GROUPS; ++group) queries_of(group).init(OUT_APART ? 4 : 1);
        keys.init(CONSUMERS / 32);
        values.init(CONSUMERS / 32);
        fence_mbarrier_init();
    }
};

/// The problem as the kernel gets it. A matrix is (batch, head), its rows queries; with PACK_HEADS (batch, key head), and
/// its rows pairs: row = query * group + head.
struct Problem {
    Scores<CAUSAL> scores;
    Order order;
    int heads;               // of a batch, each with a matrix
    long long heads_inverse;
    int group;               // heads that share a key head
    long long group_inverse;

    __device__ __forceinline__ int rows() const { return PACK_HEADS ? scores.T * group : scores.T; }
    __device__ __forceinline__ int query(int row) const { return PACK_HEADS ? divided(row, group_inverse) : row; }
    __device__ __forceinline__ int batch(int matrix) const { return divided(matrix, heads_inverse); }
    __device__ __forceinline__ int key_head(int head) const { return PACK_HEADS ? head : divided(head, group_inverse); }

    /// Tiles of keys that rows before `row_end` see, and those that the row `row` sees completely.
    __device__ __forceinline__ int tiles_until(int row_end) const
    {
        return (scores.keys_seen(query(min(row_end, rows()) - 1)) + BLOCK_N - 1) / BLOCK_N;
    }
    __device__ __forceinline__ int full_tiles(int row) const { return scores.keys_seen(query(row)) / BLOCK_N; }
};

/// One box of TMA for each slab of a tile, from row `row` of a matrix on.
template <class Tile, int RANK>
__device__ __forceinline__ void load_tile(SharedAddress tile, const TensorMap& map, SharedAddress full,
                                          int (&&at)[RANK])
{
#pragma unroll
    for (int slab = 0; slab < Tile::SLABS; ++slab) {
        at[0] = slab * Tile::SLAB;
        tensor_load(tile + slab * Tile::SLAB_BYTES, map, full, at);
    }
}

/// The producer, one thread: loads what the consumers will want, in their order, as soon as there is room.
__device__ __forceinline__ void produce(const Shared& shared, const Problem& problem, const TensorMap& q_map,
                                        const TensorMap& k_map, const TensorMap& v_map)
{
    prefetch(q_map);
    prefetch(k_map);
    prefetch(v_map);
    RingPlace<1> queries;
    Place keys, values;
#pragma unroll 1
    for (int round = 0;; ++round) {
        const int index = work_of_round<CAUSAL>(round);
        if (index >= problem.order.count()) break;
        const Work work = problem.order.at(index);
        const int batch = problem.batch(work.matrix);
        const int head = work.matrix - batch * problem.heads;
        const int key_head = problem.key_head(head);
        const int tiles = problem.tiles_until((work.tile + 1) * BLOCK_M);

        const auto load_keys = [&](int tile) {
            shared.keys.begin_fill(keys, Keys::BYTES);
            load_tile<Keys>(shared.k + keys.stage * Keys::BYTES, k_map, shared.keys.full(keys),
                            {0, tile * BLOCK_N, key_head, batch});
            keys.advance();
        };
        const auto load_values = [&](int tile) {
            shared.values.begin_fill(values, Values::BYTES);
            load_tile<Values>(shared.v + values.stage * Values::BYTES, v_map, shared.values.full(values),
                              {0, tile * BLOCK_N, key_head, batch});
            values.advance();
        };
        if (tiles > 0) load_keys(tiles - 1);
        for (int group = 0; group < WARP_GROUPS; ++group) {
            const RingBarriers<1> barriers = shared.queries_of(group);
            const int row = work.tile * BLOCK_M + 64 * group;
            barriers.begin_fill(queries, Rows::BYTES);
            load_tile<Rows>(shared.q + group * Shared::QUERY_BYTES, q_map, barriers.full(queries),
                            {0, 0, problem.query(row), head, batch});
        }
        queries.advance();
#pragma unroll 1
        for (int tile = tiles - 2; tile >= 0; --tile) {  // a tile's scores come before its predecessor's values
            load_keys(tile);
            load_values(tile + 1);
        }
        if (tiles > 0) load_values(0);
    }
}

/// S = Q K^T. `q`, `k`: operands.
__device__ __forceinline__ void multiply_keys(float (&s)[BLOCK_N / 2], uint64_t q, uint64_t k)
{
#pragma unroll
    for (int step = 0; step < COLS / 16; ++step)
        wgmma<element, BLOCK_N>(s, wgmma_advance(q, Rows::along_columns(step)),
                                wgmma_advance(k, Keys::along_columns(step)), step > 0);
    wgmma_commit();
}

/// O += P V.
__device__ __forceinline__ void multiply_values(float (&o)[V_COLS / 2], const uint32_t (&p)[BLOCK_N / 16][4], uint64_t v)
{
#pragma unroll
    for (int step = 0; step < BLOCK_N / 16; ++step)
        wgmma<element, V_COLS, true>(o, p[step], wgmma_advance(v, Values::along_rows(step)), 1);
    wgmma_commit();
}

/// A warp group of consumers: 64 rows of each of the block's tiles.
struct Consumer {
    const Shared& shared;
    const Problem& problem;
    int group;
    uint64_t q, k, v;  // operands
    int none;          // 0, which the compiler does not know
    float zero = 0.0f;  // NaN once this thread has had a result that is NaN or infinite
    Place keys, values;
    RingPlace<1> queries;

    __device__ __forceinline__ Consumer(const Shared& shared_, const Problem& problem_)
        : shared(shared_), problem(problem_), group(__shfl_sync(ALL_LANES, threadIdx.x / 128, 0)),
          q(Rows::rows_by_k(shared.q + group * Shared::QUERY_BYTES)), k(Keys::rows_by_k(shared.k)),
          v(Values::k_by_columns(shared.v)), none(problem.scores.T >> 31)
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

    __device__ __forceinline__ uint64_t key_tile() const { return wgmma_advance(k, keys.stage * Keys::BYTES); }
    __device__ __forceinline__ uint64_t value_tile() const { return wgmma_advance(v, values.stage * Values::BYTES); }
    __device__ __forceinline__ void wait_keys() const { shared.keys.wait_full(keys); }
    __device__ __forceinline__ void wait_values() const { shared.values.wait_full(values); }

    /// The tile of keys has been read; the last one with Q.
    __device__ __forceinline__ void release_keys(bool last)
    {
        shared.keys.release(keys);
        keys.advance();
        if (OUT_APART && last) shared.queries_of(group).release(queries);
    }
    __device__ __forceinline__ void release_values()
    {
        shared.values.release(values);
        values.advance();
    }

    /// This thread's rows of O, scaled, by way of shared memory. Notes whether they are finite.
    __device__ __forceinline__ void store_out(const TensorMap& map, const float (&o)[V_COLS / 2],
                                              const float (&factor)[2], int row, int head, int batch)
    {
        const SharedAddress tile = shared.out + group * Shared::OUT_BYTES;
        if (OUT_APART && threadIdx.x % 128 == 0) bulk_wait_read<0>();
        named_barrier<128>(MEET + group);  // the O before has been read, or Q
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int c = 0; c < V_COLS / 16; ++c) {
            uint32_t both[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float left = o[8 * c + 2 * i] * factor[i % 2], right = o[8 * c + 2 * i + 1] * factor[i % 2];
                both[i] = pack<element>(left, right);
                zero = fmaf(left, 0.0f, fmaf(right, 0.0f, zero));
            }
            stmatrix(tile + OutRows::offset(threadIdx.x % 128 / 32 * 16 + lane % 16, 16 * c + lane / 16 * 8), both);
        }
        fence_async_shared();
        named_barrier<128>(MEET + group);
        if (threadIdx.x % 128 != 0) return;
#pragma unroll
        for (int slab = 0; slab < OutRows::SLABS; ++slab)
            tensor_store(map, {slab * OutRows::SLAB, 0, problem.query(row), head, batch}, tile + slab * OutRows::SLAB_BYTES);
        bulk_commit();
        if constexpr (!OUT_APART) {
            bulk_wait_read<0>();
            mbarrier_arrive(shared.queries_of(group).empty(queries));
        }
    }


    /// The group's rows of one of the block's tiles of rows, from the last tile of keys to the first.
    __device__ __forceinline__ void attend(const Work& work, const TensorMap& out_map, float* lse, int NH)
    {
        const Scores<CAUSAL>& scores = problem.scores;
        const int row = work.tile * BLOCK_M + 64 * group;
        const int tiles = problem.tiles_until((work.tile + 1) * BLOCK_M);
        const int own_tiles = row < problem.rows() ? problem.tiles_until(row + 64) : 0;
        const int full_tiles = problem.full_tiles(row);
        AccumulatorRows<BLOCK_N, CAUSAL> state;
        float o[V_COLS / 2];
        float s[BLOCK_N / 2];
        uint32_t p[BLOCK_N / 16][4];
#pragma unroll
        for (int i = 0; i < V_COLS / 2; ++i) o[i] = 0.0f;

        const auto mask = [&](int tile) {
            const int first = row + opaque(accumulator_row()), key = tile * BLOCK_N + accumulator_col();
            hide_beyond(s, {scores.beyond(problem.query(first), key), scores.beyond(problem.query(first + 8), key)});
        };

        shared.queries_of(group).wait_full(queries);
        int tile = tiles - 1;
#pragma unroll 1
        for (; tile >= own_tiles; --tile) {  // the block's, but not this group's
            wait_keys();
            release_keys(tile == 0);
            if (tile > 0) {
                take_turn();
                pass_turn();
            }
            wait_values();
            release_values();
        }
        if (tiles == 0 && OUT_APART) shared.queries_of(group).release(queries);
        if (tile >= 0) {
            wait_keys();
            wgmma_fence(s);
            multiply_keys(s, q, key_tile());
            wgmma_wait<0>(s);
            release_keys(tile == 0);
            if (tile >= full_tiles) mask(tile);
            state.weigh(s, scores);
            round_weights<element>(p, s);
            if (--tile >= 0) wait_keys();

            // Scores of this tile, and O of the one before.
            const auto step = [&](auto masked) {
                take_turn();
                wgmma_fence(s, o, p);
                multiply_keys(s, q, key_tile());
                wait_values();
                wgmma_fence();
                multiply_values(o, p, value_tile());
                pass_turn();
                wgmma_wait<1>(s);
                release_keys(tile == 0);
                if (masked) mask(tile);
                const bool grows = state.weigh(s, scores);
                // The assembler would leave exponentials for after the wait for O. This branch needs the sums, and so all.
                const int always = none & (__float_as_int(state.sum[0]) ^ __float_as_int(state.sum[1]));
                if (tile > always) shared.keys.wait_full({keys.stage, keys.parity ^ always});
                wgmma_wait<0>(o);
                release_values();
                round_weights<element>(p, s);
                if (grows) {
#pragma unroll
                    for (int i = 0; i < V_COLS / 2; ++i) o[i] *= state.factor[i / 2 % 2];
                }
            };
#pragma unroll 1
            for (; tile >= full_tiles; --tile) step(Known<true>());
#pragma unroll 1
            for (; tile >= 0; --tile) step(Known<false>());
            wait_values();
            wgmma_fence(o, p);
            multiply_values(o, p, value_tile());
            wgmma_wait<0>(o);
            release_values();
        }

        const int batch = problem.batch(work.matrix);
        const int head = work.matrix - batch * problem.heads;
        float factor[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int mine = row + accumulator_row() + 8 * r;
            const int query = problem.query(mine);
            const float sum = state.whole_sum(r);
            // A group without rows has sums of 0; NaN in its O would have `mend` look through all the block's rows.
            const bool sees_keys = (!PERSISTENT || mine < problem.rows()) && scores.keys_seen(query) > 0;
            factor[r] = sees_keys ? __fdividef(1.0f, sum) : 0.0f;
            if (threadIdx.x % 4 != 0 || mine >= problem.rows()) continue;
            const int query_head = PACK_HEADS ? head * problem.group + mine - query * problem.group : head;
            lse[(static_cast<long long>(batch) * NH + query_head) * scores.T + query] =
                sees_keys ? state.log_sum_exp(r, sum, scores) : minus_infinity();
        }
        store_out(out_map, o, factor, row, head, batch);
        queries.advance();
    }

    /// Computes the warp's rows that are not finite again, once all the block's tiles of rows have been stored.
    __device__ __forceinline__ void mend(const ExactForward<HS, CAUSAL, element, HS_V>& exact, const View<element, 4>& out,
                                         float* lse) const
    {
        if (threadIdx.x % 128 == 0) bulk_wait<0>();  // what is left in shared memory
        named_barrier<128>(MEET + group);
        if (__all_sync(ALL_LANES, zero == 0.0f)) return;
#pragma unroll 1
        for (int round = 0;; ++round) {
            const int index = work_of_round<CAUSAL>(round);
            if (index >= problem.order.count()) break;
            const Work work = problem.order.at(index);
            const int batch = problem.batch(work.matrix);
            const int first = work.tile * BLOCK_M + threadIdx.x / 32 * 16;  // of the warp
#pragma unroll 1
            for (int row = first; row < min(first + 16, problem.rows()); ++row) {
                const int query = problem.query(row), head = work.matrix - batch * problem.heads;
                const int query_head = PACK_HEADS ? head * problem.group + row - query * problem.group : head;
                exact.mend(out, lse, batch, query_head, query);
            }
            if constexpr (!PERSISTENT) break;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap out_map,
                  View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ lse, int NH, int T, int T_kv, float scale, int matrices, int tiles,
                  long long order_inverse, int heads, long long heads_inverse, int group, long long group_inverse)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const Shared shared(shared_address(smem));
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const Problem problem = {scores, {tiles, matrices, order_inverse}, heads, heads_inverse, group, group_inverse};
    if (threadIdx.x == 0) shared.init();
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {
        if constexpr (PRODUCER_WARPS == 4) release_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS) produce(shared, problem, q_map, k_map, v_map);
    } else {
        if constexpr (PRODUCER_WARPS == 4) take_registers<CONSUMER_REGISTERS>();
        Consumer consumer(shared, problem);
#pragma unroll 1
        for (int round = 0;; ++round) {
            const int index = work_of_round<CAUSAL>(round);
            if (index >= problem.order.count()) break;
            consumer.attend(problem.order.at(index), out_map, lse, NH);
            if constexpr (!PERSISTENT) break;
        }
        consumer.mend({read_only(q), read_only(k), read_only(v), NH, group, scores}, out, lse);
    }
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// launch attention_forward grid=(132, 1, 1) block=(640, 1, 1) smem=131264 (q, k, v, out, q, k, v, out, lse, NH, T, T_kv, scale, HEADS_IN_ALL, TILES_M, ceil_div(1099511627776, TILES_M if HEADS_AT_ONCE else HEADS_IN_ALL), HEADS, ceil_div(1099511627776, HEADS), NH // NH_kv, ceil_div(1099511627776, NH // NH_kv))
