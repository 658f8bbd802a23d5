// autotune: backward/flash_wgmma: tiles on Hopper's tensor cores (wgmma) by TMA, warps specialised; scores recomputed transposed, dK and dV in registers, dQ added up in fp32 or in a pass of its own
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: DQ_ACCUMULATE=atomic SPLIT=keys BLOCK_N=128 BLOCK_M=64 Q_STAGES=3 DO_STAGES=3 ORDER=early STAGGER=False HEADS_AT_ONCE=0 NEXT_KERNEL=at_start QUERY_SPLIT=1 DQ_OWNER=False SPARED_REGISTERS=0
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          919eb8c5d6b10bcc

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/accumulator_sums.cuh"
#include "common/attention/exact.cuh"
#include "common/attention/exchange_ring.cuh"
#include "common/attention/key_block.cuh"
#include "common/attention/key_producer.cuh"
#include "common/attention/marked_gradients.cuh"
#include "common/attention/query_origins.cuh"
#include "common/attention/ring.cuh"
#include "common/attention/round_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/attention/transposed_scores.cuh"
#include "common/attention/work_order.cuh"
#include "common/ptx/dependent_launch.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/slab_copy.cuh"
#include "common/tile/slab_products.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

enum class Order { PLAIN, EARLY, LATE };

constexpr int HS = 64;
constexpr int HS_V = 64;            // of V, O and their gradients
constexpr bool CAUSAL = true;
constexpr bool ADDED = true;         // blocks of keys add up dQ in memory; else it has a pass of its own
constexpr bool OVERLAP = true;       // kernels of a call begin before those before them have ended
constexpr bool BULK = false;          // they add by way of shared memory; else from registers
constexpr int BLOCK_N = 128;         // keys a block
constexpr int BLOCK_M = 64;          // queries a step; keys, in dQ's pass
constexpr int Q_STAGES = 3;          // tiles of Q in shared memory; of K, in dQ's pass
constexpr int DO_STAGES = 3;         // of dO; of V
constexpr Order ORDER = Order::EARLY;  // EARLY: dV before dS is computed; LATE: dQ of the step before after it
constexpr bool KEPT = true;           // P until dS, in fp32; else dS comes from P as it was rounded
constexpr int DQ_AFTER = 0;          // dQ of the step before comes behind so many 16 queries of dS, which leave it registers
constexpr bool STAGGER = false;       // blocks of a head begin at different queries
constexpr int HEADS_AT_ONCE = 0;     // whose blocks follow one another, to find Q, dO and dQ in L2; 0: all

constexpr int WARP_GROUPS = 2;  // of consumers
constexpr int CONSUMERS = 128 * WARP_GROUPS;
constexpr int THREADS = CONSUMERS + 128;  // one more would do, but whole groups hand registers over
constexpr int COLS = 64;       // TMA fills those beyond HS with zeros
constexpr int TILE_COLS = 64;
constexpr int V_COLS = 64;
constexpr int DQ_COLS = 32;           // of dQ that a group has at once, of 64 rows
constexpr bool DQ_BY_ROWS = false;     // groups have rows of a tile of dQ; else columns
constexpr int CONSUMER_REGISTERS = WARP_GROUPS == 1 ? 256 : WARP_GROUPS == 2 ? 240 : 160;
constexpr int PRODUCER_REGISTERS = WARP_GROUPS == 1 ? 56 : WARP_GROUPS == 2 ? 24 : 32;
constexpr int ROW_THREADS = 256;    // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;         // of them a row, to compute its delta
constexpr float LARGEST_LSE = 16384.0f;  // in base 2: its rounding is a rounding of an element

using Block = KeyBlock<BLOCK_N, BLOCK_M, CAUSAL, STAGGER>;
using Keys = SlabTile<BLOCK_N, COLS>;
using Values = SlabTile<BLOCK_N, V_COLS>;
using Queries = SlabTile<BLOCK_M, COLS>;
using Douts = SlabTile<BLOCK_M, V_COLS>;
using Pairs = SlabTile<BLOCK_M, BLOCK_N>;   // dS: queries by keys
using Scores64 = float[BLOCK_M / 2];        // S or dP of a group's 64 keys, transposed
using Rounded = uint32_t[BLOCK_M / 16][4];  // P or dS
using Gradient = float[COLS / 2];           // of a group's 64 keys: dK
using ValueGradient = float[V_COLS / 2];    // and dV
using Share = float[DQ_COLS / 2];           // of dQ
using Once = RingPlace<1>;
using Sums = AccumulatorSums<ADDED ? BLOCK_M : 64, TILE_COLS, DQ_COLS, DQ_BY_ROWS>;

/// A block's shared memory: tiles of K and V, rings of Q and dO with what is known of their queries, what groups exchange.
struct Shared {
    static constexpr int WEIGHTS_BYTES = 0;  // P, for the group that has dS
    static constexpr int PAIRS_BYTES = ADDED ? Pairs::BYTES : 0;
    static constexpr int PART_BYTES = BULK ? 256 * DQ_COLS : 0;
    SharedAddress k, v, q, dout, pairs, weights, parts, origins, deltas;
    RingBarriers<1> keys, values;
    RingBarriers<Q_STAGES> queries;
    RingBarriers<DO_STAGES> douts;
    ExchangeBarriers<2> pair_tiles, weight_tiles;

    __device__ __forceinline__ Shared(SharedAddress start)
        : k(start), v(k + Keys::BYTES), q(v + Values::BYTES), dout(q + Q_STAGES * Queries::BYTES),
          pairs(dout + DO_STAGES * Douts::BYTES), weights(pairs + 2 * PAIRS_BYTES), parts(weights + 2 * WEIGHTS_BYTES),
          origins(parts + WARP_GROUPS * PART_BYTES), deltas(origins + 4 * Q_STAGES * BLOCK_M),
          keys{deltas + 4 * DO_STAGES * BLOCK_M}, values{keys.first + keys.BYTES}, queries{values.first + values.BYTES},
          douts{queries.first + queries.BYTES}, pair_tiles{ {douts.first + douts.BYTES} },
          weight_tiles{ {pair_tiles.first + pair_tiles.BYTES} }
    {
    }

    __device__ __forceinline__ void init() const
    {
        keys.init(1);
        values.init(1);
        queries.init(CONSUMERS / 32);
        douts.init(CONSUMERS / 32);
        pair_tiles.init(CONSUMERS / 32, CONSUMERS / 32);
        weight_tiles.init(4, 4);
        
        fence_mbarrier_init();
    }
};

/// One of two arrays.
template <bool FIRST, int A, int B>
__device__ __forceinline__ float (&one_of(float (&a)[A], float (&b)[B]))[FIRST ? A : B]
{
    if constexpr (FIRST)
        return a;
    else
        return b;
}

/// Of scores those of the 16 queries of a step.
template <int REGISTERS>
__device__ __forceinline__ const float (&part_of(const float (&s)[REGISTERS], int step))[8]
{
    return reinterpret_cast<const float (&)[8]>(s[8 * step]);
}

/// A warp group of consumers.
struct Consumer {
    const Shared& shared;
    const Block& block;
    int group;
    RingPlace<Q_STAGES> q;
    RingPlace<DO_STAGES> d;
    RingPlace<2> exchanged;  // of dS
    float* dq_sums;
    float* sums_before = nullptr;  // where dQ of the step before belongs

    __device__ __forceinline__ Consumer(const Shared& shared_, const Block& block_, float* dq_sums_)
        : shared(shared_), block(block_), group(__shfl_sync(ALL_LANES, threadIdx.x / 128, 0)), dq_sums(dq_sums_)
    {
    }

    __device__ __forceinline__ SharedAddress q_tile() const { return shared.q + q.stage * Queries::BYTES; }
    __device__ __forceinline__ SharedAddress dout_tile() const { return shared.dout + d.stage * Douts::BYTES; }
    __device__ __forceinline__ SharedAddress pairs(const RingPlace<2>& at) const
    {
        return shared.pairs + at.stage * Pairs::BYTES;
    }

    /// P of the group's keys, the first of them `key`, from S.
    __device__ __forceinline__ void weigh(Scores64& s, int tile, int key, bool masked) const
    {
        if (masked) {
            int before[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int own = key + accumulator_row() + 8 * r;
                before[r] = (own < block.scores.T_kv ? block.scores.first_query(own) - tile * BLOCK_M : 1 << 30) -
                            accumulator_col();
            }
            hide_before(s, before);
        }
        weigh_transposed(s, block.scores, shared.origins + q.stage * 4 * BLOCK_M);
    }

    /// dS of 16 of a tile's queries from P as it was rounded.
    __device__ __forceinline__ void differentiate(uint32_t (&ds)[4], const uint32_t (&p)[4], const Scores64& dp,
                                                  int step) const
    {
        const auto weights = [&](int i) { return unpack_pair<element>(p[i]); };
        differentiate_transposed<element>(ds, weights, dp + 8 * step, shared.deltas + d.stage * 4 * BLOCK_M + 64 * step);
    }

    /// The same from P before.
    __device__ __forceinline__ void differentiate(uint32_t (&ds)[4], const float (&p)[8], const Scores64& dp, int step) const
    {
        const auto weights = [&](int i) { return make_float2(p[2 * i], p[2 * i + 1]); };
        differentiate_transposed<element>(ds, weights, dp + 8 * step, shared.deltas + d.stage * 4 * BLOCK_M + 64 * step);
    }

    /// dS of the group's keys, `first` of the block's on, to where all groups see it.
    __device__ __forceinline__ void place_ds(const Rounded& ds, int first) const
    {
        const int lane = threadIdx.x % 32, key = first + threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8;
        const SharedAddress rows = pairs(exchanged) + Pairs::offset(lane / 16 * 8 + lane % 8, key);
        shared.pair_tiles.wait_empty(exchanged);
#pragma unroll
        for (int step = 0; step < BLOCK_M / 16; ++step) stmatrix_transposed(rows + Pairs::along_rows(step), ds[step]);
    }

    /// Adds to a part of dQ's sums.
    __device__ __forceinline__ void add_dq(const Share& dq, float* sums) const
    {
        if constexpr (BULK)
            Sums::add_at_once(sums, dq, shared.parts + group * Shared::PART_BYTES, group);
        else
            Sums::add(sums, dq);
    }

    /// The group's share of dQ of the step before.
    __device__ __forceinline__ void begin_dq(Share& dq) const
    {
        const int column = DQ_BY_ROWS ? 0 : group * DQ_COLS;
        shared.pair_tiles.wait_full(place_before(exchanged));
        wgmma_fence(dq);
        multiply_over_rows<element, Pairs, Keys>(dq, pairs(place_before(exchanged)) + (DQ_BY_ROWS ? group * 64 * Pairs::LINE : 0),
                           shared.k + column / Keys::SLAB * Keys::SLAB_BYTES + column % Keys::SLAB * 2);
    }

    /// The group's 64 keys by a tile of queries. In the first step K and V must be waited for, and there is no dQ yet.
    template <class Masked, class First>
    __device__ __forceinline__ void step(Gradient& dk, ValueGradient& dv, int head, int tile, Masked masked, First)
    {
        constexpr bool HAS_DQ = ADDED && !First();
        constexpr bool EARLY = ORDER == Order::EARLY, LATE = ORDER == Order::LATE;
        constexpr bool DQ_FIRST = HAS_DQ && !LATE && DQ_AFTER == 0;  // before dS
        Scores64 s, dp;
        Rounded p, ds;
        if constexpr (First()) shared.keys.wait_full(Once());
        shared.queries.wait_full(q);
        wgmma_fence(s);
        multiply_over_columns<element, Keys, Queries>(s, Keys::rows_by_k(shared.k + group * 64 * Keys::LINE), q_tile());
        if constexpr (First()) shared.values.wait_full(Once());
        shared.douts.wait_full(d);
        wgmma_fence(dp);
        multiply_over_columns<element, Values, Douts>(dp, Values::rows_by_k(shared.v + group * 64 * Values::LINE), dout_tile());
        wgmma_wait<1>(s);
        weigh(s, tile, block.key + group * 64, masked);
        if constexpr (!KEPT || EARLY) round_weights<element>(p, s);
        constexpr bool IN_S = DQ_COLS == BLOCK_M && (!KEPT || LATE);  // where S is no longer needed
        float apart[IN_S ? 1 : DQ_COLS / 2];
        Share& dq = one_of<IN_S>(s, apart);
        if constexpr (DQ_FIRST) begin_dq(dq);
        if constexpr (EARLY) {
            wgmma_fence(p);
            add_product_over_rows<element, Douts>(dv, p, dout_tile());
            wgmma_commit();
        }
        wgmma_wait<DQ_FIRST + EARLY>(dp);
#pragma unroll
        for (int i = 0; i < BLOCK_M / 16; ++i) {
            if constexpr (HAS_DQ && !LATE && DQ_AFTER > 0)
                if (i == DQ_AFTER) begin_dq(dq);
            if constexpr (KEPT)
                differentiate(ds[i], part_of(s, i), dp, i);
            else
                differentiate(ds[i], p[i], dp, i);
            if constexpr (KEPT && !EARLY) round_weights<element>(p[i], part_of(s, i));
        }
        if constexpr (HAS_DQ && LATE) begin_dq(dq);
        if constexpr (ADDED) place_ds(ds, group * 64);
        if constexpr (EARLY) {
            wgmma_fence(ds);
        } else {
            wgmma_fence(p, ds);
            add_product_over_rows<element, Douts>(dv, p, dout_tile());
        }
        add_product_over_rows<element, Queries>(dk, ds, q_tile());
        wgmma_commit();
        if constexpr (ADDED) {
            fence_async_shared();
            shared.pair_tiles.filled(exchanged);
            if constexpr (HAS_DQ) {
                wgmma_wait<EARLY && DQ_AFTER == 0 ? 2 : 1>(dq);
                shared.pair_tiles.release(place_before(exchanged));
                add_dq(dq, sums_before);
            }
        }
        wgmma_wait<0>(dk, dv, p, ds);
        end_step(head, tile);
    }

    /// Whether no query of a tile sees a key of the group.
    __device__ __forceinline__ bool sees_nothing(int tile) const
    {
        return (tile + 1) * BLOCK_M <= block.scores.first_query(block.key + group * 64);
    }

    /// The first step where that is so: what the others' dQ wants is zeros.
    __device__ __forceinline__ void skip_first(int head, int tile)
    {
        shared.keys.wait_full(Once());
        shared.values.wait_full(Once());
        shared.queries.wait_full(q);
        shared.douts.wait_full(d);
        if constexpr (ADDED) {
            const Rounded zeros = {};
            place_ds(zeros, group * 64);
            fence_async_shared();
            shared.pair_tiles.filled(exchanged);
        }
        end_step(head, tile);
    }

    __device__ __forceinline__ void end_step(int head, int tile)
    {
        sums_before = dq_sums + block.number(head, tile) * Sums::TILE + group * Sums::PART;
        exchanged.advance();
        shared.queries.release(q);
        shared.douts.release(d);
        q.advance();
        d.advance();
    }

    __device__ __forceinline__ void add_last_dq() const
    {
        Share dq;
        begin_dq(dq);
        wgmma_wait<0>(dq);
        add_dq(dq, sums_before);
    }
};

/// dK and dV; a block is BLOCK_N keys of a key head, and adds their share of dQ.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
key_gradients(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
              const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap dout_map,
              const __grid_constant__ TensorMap dk_map, const __grid_constant__ TensorMap dv_map,
              const float* __restrict__ origins, const float* __restrict__ deltas, float* __restrict__ dq_sums, int NH,
              int NH_kv, int T, int T_kv, float scale, int matrices, int blocks, long long order_inverse)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const Shared shared(shared_address(smem));
    Work work = WorkOrder<HEADS_AT_ONCE, false>{blocks, matrices, order_inverse}.at(blockIdx.x);
    work = {__shfl_sync(ALL_LANES, work.matrix, 0), __shfl_sync(ALL_LANES, work.tile, 0)};  // the compiler sees: one a warp
    const Block block(Scores<CAUSAL>(T, T_kv, scale), NH, NH_kv, work, blocks);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {
        release_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS)
            produce_tiles<Keys, Values, Queries, Douts, Q_STAGES, DO_STAGES, OVERLAP, false>(
                shared, block, q_map, k_map, v_map, dout_map, origins, deltas, [] {
                    wait_for_previous_kernel();  // origins, deltas and dQ's sums are row_delta's
                    let_next_kernel_begin();

                });
    } else {
        take_registers<CONSUMER_REGISTERS>();
        Consumer consumer(shared, block, dq_sums);
        const int group = consumer.group;
        Gradient dk;
        ValueGradient dv;
#pragma unroll
        for (int i = 0; i < COLS / 2; ++i) dk[i] = 0.0f;
#pragma unroll
        for (int i = 0; i < V_COLS / 2; ++i) dv[i] = 0.0f;
        wgmma_fence(dk, dv);
        block.for_each_step([&](int head, int tile, auto masked, auto first) {
            if (CAUSAL && first && consumer.sees_nothing(tile))
                consumer.skip_first(head, tile);
            else
                consumer.step(dk, dv, head, tile, masked, first);
        });
        consumer.add_last_dq();
        const int row = group * 64;
        const int at[4] = {0, block.key + row, block.key_head, block.batch};
        store_marked<Values, element>(dv, 1.0f, dv_map, at, at[1] < T_kv, shared.v, row, group);
        named_barrier<CONSUMERS>(8);  // K has been read
        store_marked<Keys, element>(dk, scale, dk_map, at, at[1] < T_kv, shared.k, row, group);
        if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
    }
}

/// A query's origin (what is subtracted from its scores) and delta, ROW_LANES threads a row; clears dQ's sums.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_delta(View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
          float* __restrict__ origins, float* __restrict__ deltas,
          float* __restrict__ dq_sums, int NH, int T, int T_kv, int rows, float scale)
{
    let_next_kernel_begin();
    const long long number = write_origin<HS_V, ROW_THREADS, ROW_LANES>(out, dout, lse, origins, deltas, NH, rows,
                                                                        Scores<CAUSAL>(T, T_kv, scale), LARGEST_LSE);
    if (number < 0) return;
    if constexpr (ADDED) clear_sums<TILE_COLS, ROW_LANES>(dq_sums + number * TILE_COLS);
}

/// Rounds dQ, 16 rows by up to 64 columns a warp, and computes again what came out not finite.
extern "C" __global__ void __launch_bounds__(ROW_THREADS, 2)
finish_gradients(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out, View<element, 4> dout,
                 const float* __restrict__ lse, View<element, 4> dq, View<element, 4> dk, View<element, 4> dv,
                 const float* __restrict__ dq_sums, int B, int NH, int NH_kv, int T, int T_kv, int rows, float scale)
{
    wait_for_previous_kernel();
    const ExactGradients<HS, CAUSAL, element, HS_V> exact = {
        read_only(q), read_only(k), read_only(v), read_only(out), read_only(dout), lse, NH, NH / NH_kv,
        Scores<CAUSAL>(T, T_kv, scale)};
    constexpr int WARPS = ROW_THREADS / 32;
    const int warp = threadIdx.x / 32;
    const int number = blockIdx.x * WARPS + warp;
    const RowPlace keys = sixteen_rows(number, NH_kv, T_kv);
    KeyMarks<element> marks;
    if (keys.b < B) marks.load(dk, dv, keys);
    round_share<Sums, BLOCK_M, TILE_COLS, WARPS>(dq_sums, dq, exact, B, NH, T, rows);
    __syncwarp();  // all have looked for marks
    if (marks.any()) mend_keys(exact, dk, dv, keys);
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
// buffer origins: 49152 fp32, workspace
// buffer deltas: 49152 fp32, workspace
// buffer dq_sums: 3145728 fp32, workspace
// launch row_delta grid=(1536, 1, 1) block=(256, 1, 1) smem=0 (out, dout, lse, origins, deltas, dq_sums, NH, T, T_kv, ROWS, scale)
// launch key_gradients grid=(384, 1, 1) block=(384, 1, 1) smem=116416 (q, k, v, dout, dk, dv, origins, deltas, dq_sums, NH, NH_kv, T, T_kv, scale, KEY_HEADS, KEY_BLOCKS, ceil_div(1099511627776, KEY_BLOCKS if HEADS_AT_ONCE else KEY_HEADS))
// launch finish_gradients grid=(384, 1, 1) block=(256, 1, 1) smem=0 (q, k, v, out, dout, lse, dq, dk, dv, dq_sums, B, NH, NH_kv, T, T_kv, ROWS, scale)
