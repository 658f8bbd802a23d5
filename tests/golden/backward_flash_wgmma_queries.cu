// autotune: backward/flash_wgmma_queries: as flash_wgmma, but scores recomputed as they are: a warp group has queries, dQ comes from registers, and groups share out dK and dV, whose factors they exchange
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: BLOCK_N=128 WARP_GROUPS=2 Q_STAGES=2 DO_STAGES=2 GRADIENT_ROWS=head ORDER=late PAIR_STAGES=1 DQ_ACCUMULATE=atomic HEADS_AT_ONCE=0 NEXT_KERNEL=at_start
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          7b6dcf5bb123d1bf

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/accumulator_sums.cuh"
#include "common/attention/exact.cuh"
#include "common/attention/exchange_ring.cuh"
#include "common/attention/gradient_part.cuh"
#include "common/attention/key_block.cuh"
#include "common/attention/key_producer.cuh"
#include "common/attention/marked_gradients.cuh"
#include "common/attention/query_origins.cuh"
#include "common/attention/query_scores.cuh"
#include "common/attention/ring.cuh"
#include "common/attention/round_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/attention/work_order.cuh"
#include "common/ptx/dependent_launch.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/slab_copy.cuh"
#include "common/tile/slab_products.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int HS_V = 64;            // of V, O and their gradients
constexpr bool CAUSAL = true;
constexpr int BLOCK_N = 128;         // keys a block
constexpr int WARP_GROUPS = 2;       // of consumers, 64 queries of a step each
constexpr int BLOCK_M = 64 * WARP_GROUPS;
constexpr int Q_STAGES = 2;          // tiles of Q in shared memory
constexpr int DO_STAGES = 2;         // of dO
constexpr int PAIR_STAGES = 1;       // of P and dS
constexpr bool LATE = true;          // dV and dK of a step are computed beside the next one's scores
constexpr bool OVERLAP = true;      // kernels of a call begin before those before them have ended
constexpr bool BULK = false;         // dQ is added by way of shared memory; else from registers
constexpr bool HEAD = true;          // columns of the head are rows of dV's and dK's products; else keys are
constexpr int HEADS_AT_ONCE = 0;     // whose blocks follow one another, to find Q, dO and dQ in L2; 0: all

constexpr int CONSUMERS = 128 * WARP_GROUPS;
constexpr int THREADS = CONSUMERS + 128;  // one more would do, but whole groups hand registers over
constexpr int COLS = 64;       // TMA fills those beyond HS with zeros
constexpr int V_COLS = 64;
constexpr int SUM_COLS = 64;     // of dQ's sums
constexpr int DQ_COLS = 64;      // of them at once
constexpr int CONSUMER_REGISTERS = WARP_GROUPS == 2 ? 240 : 160;
constexpr int PRODUCER_REGISTERS = WARP_GROUPS == 2 ? 24 : 32;
constexpr int ROW_THREADS = 256;    // a block of the kernels that work row by row
constexpr int ROW_LANES = 8;         // of them a row, to compute its delta
constexpr float LARGEST_LSE = 16384.0f;  // in base 2: its rounding is a rounding of an element

using Block = KeyBlock<BLOCK_N, BLOCK_M, CAUSAL, false>;
using Keys = SlabTile<BLOCK_N, COLS>;
using Values = SlabTile<BLOCK_N, V_COLS>;
using Queries = SlabTile<BLOCK_M, COLS>;
using Douts = SlabTile<BLOCK_M, V_COLS>;
using Pairs = SlabTile<BLOCK_M, BLOCK_N, 64>;  // P or dS: queries by keys
using Scores64 = float[BLOCK_N / 2];            // S or dP of a group's 64 queries
using Rounded = uint32_t[BLOCK_N / 16][4];      // P or dS of them
using Share = float[DQ_COLS / 2];               // of dQ of them
using KeyPart = GradientPart<element, Pairs, Queries, HEAD, 1, 128>;
using ValuePart = GradientPart<element, Pairs, Douts, HEAD, 1, 128>;
using Once = RingPlace<1>;
using Sums = AccumulatorSums<BLOCK_M, SUM_COLS, SUM_COLS, true>;
using SumsAtOnce = AccumulatorSums<64, DQ_COLS, DQ_COLS, true>;

/// A block's shared memory: tiles of K and V, rings of Q and dO with what is known of their queries, what groups exchange.
struct Shared {
    static constexpr int PAIRS_BYTES = 2 * Pairs::BYTES;  // P, and dS behind it
    static constexpr int PART_BYTES = BULK ? 256 * DQ_COLS : 0;
    SharedAddress k, v, q, dout, pairs, parts, origins, deltas;
    RingBarriers<1> keys, values;
    RingBarriers<Q_STAGES> queries;
    RingBarriers<DO_STAGES> douts;
    ExchangeBarriers<PAIR_STAGES> pair_tiles;

    __device__ __forceinline__ Shared(SharedAddress start)
        : k(start), v(k + Keys::BYTES), q(v + Values::BYTES), dout(q + Q_STAGES * Queries::BYTES),
          pairs(dout + DO_STAGES * Douts::BYTES), parts(pairs + PAIR_STAGES * PAIRS_BYTES),
          origins(parts + WARP_GROUPS * PART_BYTES), deltas(origins + 4 * Q_STAGES * BLOCK_M),
          keys{deltas + 4 * DO_STAGES * BLOCK_M}, values{keys.first + keys.BYTES}, queries{values.first + values.BYTES},
          douts{queries.first + queries.BYTES}, pair_tiles{ {douts.first + douts.BYTES} }
    {
    }

    __device__ __forceinline__ void init() const
    {
        keys.init(1);
        values.init(1);
        queries.init(CONSUMERS / 32);
        douts.init(CONSUMERS / 32);
        pair_tiles.init(CONSUMERS / 32, CONSUMERS / 32);
        fence_mbarrier_init();
    }
};

/// A warp group of consumers. `Parts`: its part of dV and its part of dK, or of one of them.
struct Consumer {
    const Shared& shared;
    const Block& block;
    int group;
    RingPlace<Q_STAGES> q;
    RingPlace<DO_STAGES> d;
    RingPlace<PAIR_STAGES> exchanged;
    float* dq_sums;

    __device__ __forceinline__ Consumer(const Shared& shared_, const Block& block_, float* dq_sums_)
        : shared(shared_), block(block_), group(__shfl_sync(ALL_LANES, threadIdx.x / 128, 0)), dq_sums(dq_sums_)
    {
    }


    /// P of the group's queries from S.
    __device__ __forceinline__ void weigh(Scores64& s, float of_lane, int tile, bool masked) const
    {
        if (masked) {
            const int query = tile * BLOCK_M + group * 64 + accumulator_row(), key = block.key + accumulator_col();
            hide_beyond(s, {block.scores.beyond(query, key), block.scores.beyond(query + 8, key)});
        }
        float origins[2];
        of_rows<false>(origins, of_lane);
        weigh_rows(s, block.scores, origins);
    }

    /// Adds what the pairs at `at`, of the queries at `q_at` and `d_at`, give. One group of wgmmas.
    __device__ __forceinline__ void begin_gradients(const RingPlace<PAIR_STAGES>& at, const RingPlace<Q_STAGES>& q_at,
                                                    const RingPlace<DO_STAGES>& d_at, KeyPart::Sums& own) const
    {
        const SharedAddress pairs = shared.pairs + at.stage * Shared::PAIRS_BYTES;
        const SharedAddress dout = shared.dout + d_at.stage * Douts::BYTES, queries = shared.q + q_at.stage * Queries::BYTES;
        shared.pair_tiles.wait_full(at);
        wgmma_fence(own);
        KeyPart{0, 0}.add(own, pairs + group * Pairs::BYTES, group == 0 ? dout : queries);
        wgmma_commit();
    }

    /// Gives back what those have read.
    __device__ __forceinline__ void release(const RingPlace<PAIR_STAGES>& at, const RingPlace<Q_STAGES>& q_at,
                                            const RingPlace<DO_STAGES>& d_at) const
    {
        shared.pair_tiles.release(at);
        shared.queries.release(q_at);
        shared.douts.release(d_at);
    }

    /// Columns of dQ of the group's queries from `col` on. One group of wgmmas.
    __device__ __forceinline__ void begin_dq(Share& dq, Rounded& ds, int col) const
    {
        wgmma_fence(dq, ds);
        multiply_registers_over_rows<element, Keys>(dq, ds, shared.k + Keys::from_column(col));
    }

    __device__ __forceinline__ void add_dq(const Share& dq, float* sums) const
    {
        if constexpr (BULK)
            SumsAtOnce::add_at_once(sums, dq, shared.parts + group * Shared::PART_BYTES, group);
        else
            SumsAtOnce::add(sums, dq);
    }

    /// The group's 64 queries of a tile by the block's keys, and its part of dV and dK of all groups' queries: of this step,
    /// or of the step before. In the first step K and V must be waited for.
    template <class Masked, class First, class... Parts>
    __device__ __forceinline__ void step(int head, int tile, Masked masked, First, Parts&... parts)
    {
        constexpr bool BEFORE = LATE && !First();
        Scores64 s, dp;
        Rounded p, ds;
        if constexpr (First()) shared.keys.wait_full(Once());
        shared.queries.wait_full(q);
        wgmma_fence(s);
        multiply_over_columns<element, Queries, Keys>(
            s, Queries::rows_by_k(shared.q + q.stage * Queries::BYTES + group * 64 * Queries::LINE), shared.k);
        if constexpr (First()) shared.values.wait_full(Once());
        shared.douts.wait_full(d);
        wgmma_fence(dp);
        multiply_over_columns<element, Douts, Values>(
            dp, Douts::rows_by_k(shared.dout + d.stage * Douts::BYTES + group * 64 * Douts::LINE), shared.v);
        if constexpr (BEFORE) begin_gradients(place_before(exchanged), place_before(q), place_before(d), parts...);
        const float of_lane = load_of_lane(shared.origins + 4 * (q.stage * BLOCK_M + group * 64),
                                           shared.deltas + 4 * (d.stage * BLOCK_M + group * 64));
        wgmma_wait<BEFORE ? 2 : 1>(s);
        weigh(s, of_lane, tile, masked);
        wgmma_wait<BEFORE ? 1 : 0>(dp);
        float deltas[2];
        of_rows<true>(deltas, of_lane);
        differentiate_rows<element>(p, ds, s, dp, deltas);
        if constexpr (BEFORE && PAIR_STAGES == 1) {  // this step's pairs take their place
            wgmma_wait<0>(parts...);
            release(place_before(exchanged), place_before(q), place_before(d));
        }
        const SharedAddress pairs = shared.pairs + exchanged.stage * Shared::PAIRS_BYTES;
        shared.pair_tiles.wait_empty(exchanged);
        place_operands<Pairs>(pairs, group * 64, p);
        place_operands<Pairs>(pairs + Pairs::BYTES, group * 64, ds);
        Share dq;
        begin_dq(dq, ds, 0);
        fence_async_shared();
        shared.pair_tiles.filled(exchanged);
        if constexpr (BEFORE && PAIR_STAGES > 1) {
            wgmma_wait<1>(parts...);
            release(place_before(exchanged), place_before(q), place_before(d));
        }
        float* const sums = dq_sums + block.number(head, tile) * Sums::TILE + group * Sums::PART;
        if constexpr (!LATE) {
            begin_gradients(exchanged, q, d, parts...);
            wgmma_wait<1>(dq, ds);
        } else {
            wgmma_wait<0>(dq, ds);
        }
        add_dq(dq, sums);
#pragma unroll
        for (int col = DQ_COLS; col < SUM_COLS; col += DQ_COLS) {
            begin_dq(dq, ds, col);
            wgmma_wait<0>(dq, ds);
            add_dq(dq, sums + 64 * col);
        }
        if constexpr (!LATE) {
            wgmma_wait<0>(parts...);
            release(exchanged, q, d);
        }
        exchanged.advance();
        q.advance();
        d.advance();
    }

    /// All steps. What is added up in `parts` is complete afterwards.
    template <class... Parts>
    __device__ __forceinline__ void run(Parts&... parts)
    {
        block.for_each_step([&](int head, int tile, auto masked, auto first) { step(head, tile, masked, first, parts...); });
        if constexpr (LATE) {
            begin_gradients(place_before(exchanged), place_before(q), place_before(d), parts...);
            wgmma_wait<0>(parts...);
        }
    }
};

/// dK and dV, and a share of dQ added; a block is BLOCK_N keys of a key head.
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
        if (threadIdx.x != CONSUMERS) return;
        produce_tiles<Keys, Values, Queries, Douts, Q_STAGES, DO_STAGES, OVERLAP, false>(
            shared, block, q_map, k_map, v_map, dout_map, origins, deltas, [] {
                wait_for_previous_kernel();  // origins, deltas and dQ's sums are row_delta's
                let_next_kernel_begin();
            });
        return;
    }
    take_registers<CONSUMER_REGISTERS>();
    Consumer consumer(shared, block, dq_sums);
    KeyPart::Sums own;  // of dV in group 0, of dK in group 1
    KeyPart::clear(own);
    consumer.run(own);
    named_barrier<CONSUMERS>(8);  // K and V have been read
    if (consumer.group == 0)
        KeyPart{0, 0}.place<Values>(own, 1.0f, shared.v);
    else
        KeyPart{0, 0}.place<Keys>(own, scale, shared.k);
    fence_async_shared();
    named_barrier<CONSUMERS>(8);
    if (threadIdx.x == 0) {
        for (int row = 0; row < min(BLOCK_N, T_kv - block.key); row += 64) {
            store_slabs<Values>(dv_map, {0, block.key + row, block.key_head, block.batch}, shared.v, row);
            store_slabs<Keys>(dk_map, {0, block.key + row, block.key_head, block.batch}, shared.k, row);
        }
        bulk_commit();
    }
    if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
}

/// A query's origin (what is subtracted from its scores) and delta, ROW_LANES threads a row; clears dQ's sums.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
row_delta(View<const element, 4> out, View<const element, 4> dout, const float* __restrict__ lse,
          float* __restrict__ origins, float* __restrict__ deltas, float* __restrict__ dq_sums, int NH, int T, int T_kv,
          int rows, float scale)
{
    let_next_kernel_begin();
    const long long number = write_origin<HS_V, ROW_THREADS, ROW_LANES>(out, dout, lse, origins, deltas, NH, rows,
                                                                        Scores<CAUSAL>(T, T_kv, scale), LARGEST_LSE);
    if (number >= 0) clear_sums<SUM_COLS, ROW_LANES>(dq_sums + number * SUM_COLS);
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
    const RowPlace keys = sixteen_rows(blockIdx.x * WARPS + threadIdx.x / 32, NH_kv, T_kv);
    SharedKeyMarks<element, HS, HS_V> marks;
    if (keys.b < B) marks.load(dk, dv, keys);
    round_share<Sums, BLOCK_M, SUM_COLS, WARPS>(dq_sums, dq, exact, B, NH, T, rows);
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
// launch key_gradients grid=(384, 1, 1) block=(384, 1, 1) smem=166000 (q, k, v, dout, dk, dv, origins, deltas, dq_sums, NH, NH_kv, T, T_kv, scale, KEY_HEADS, KEY_BLOCKS, ceil_div(1099511627776, KEY_BLOCKS if HEADS_AT_ONCE else KEY_HEADS))
// launch finish_gradients grid=(384, 1, 1) block=(256, 1, 1) smem=0 (q, k, v, out, dout, lse, dq, dk, dv, dq_sums, B, NH, NH_kv, T, T_kv, ROWS, scale)
