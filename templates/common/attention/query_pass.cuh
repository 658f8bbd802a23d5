// dQ in a pass of its own by wgmma: a warp group has 64 queries, and goes over the keys that they see; scores and their
// gradients are recomputed, and rounded are operands from registers. Nothing is added up in memory: repeats agree to the bit.
#pragma once

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/marked_gradients.cuh"
#include "common/attention/ring.cuh"
#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/tile/slab_copy.cuh"
#include "common/tile/slab_products.cuh"
#include "common/tile/slab_tile.cuh"

/// A block of two warp groups and a producer. BLOCK: keys a step; K_STAGES, V_STAGES: tiles of them in shared memory.
/// V_COLS: columns of V and dO.
template <class T, int COLS, int BLOCK, bool CAUSAL, int K_STAGES, int V_STAGES, int V_COLS = COLS>
struct QueryPass {
    using Rows = SlabTile<64, COLS>;     // a group's, of Q and dQ
    using OutRows = SlabTile<64, V_COLS>;  // and of dO
    using Keys = SlabTile<BLOCK, COLS>;
    using Values = SlabTile<BLOCK, V_COLS>;
    using Once = RingPlace<1>;

    SharedAddress q, dout, k, v;
    RingBarriers<1> rows;
    RingBarriers<K_STAGES> keys;
    RingBarriers<V_STAGES> values;
    Scores<CAUSAL> scores;
    int batch, head;
    int first;  // query of the block

    __device__ __forceinline__ QueryPass(SharedAddress smem, const Scores<CAUSAL>& scores_, int batch_, int head_,
                                         int block)
        : q(smem), dout(q + 2 * Rows::BYTES), k(dout + 2 * OutRows::BYTES), v(k + K_STAGES * Keys::BYTES),
          rows{v + V_STAGES * Values::BYTES}, keys{rows.first + rows.BYTES}, values{keys.first + keys.BYTES},
          scores(scores_), batch(batch_), head(head_), first(block * 128)
    {
    }

    /// One thread, before the block's barrier.
    __device__ __forceinline__ void init() const
    {
        rows.init(1);
        keys.init(8);
        values.init(8);
        fence_mbarrier_init();
    }

    /// Tiles of keys that queries before `end` see.
    __device__ __forceinline__ int tiles_until(int end) const
    {
        return (scores.keys_seen(min(end, scores.T) - 1) + BLOCK - 1) / BLOCK;
    }

    /// The producer, one thread. Boxes of Q's and dO's maps have 64 rows, those of the others BLOCK.
    __device__ __forceinline__ void produce(int key_head, const TensorMap& q_map, const TensorMap& dout_map,
                                            const TensorMap& k_map, const TensorMap& v_map) const
    {
        rows.begin_fill(Once(), 2 * Rows::BYTES + 2 * OutRows::BYTES);
        for (int group = 0; group < 2; ++group) {
            const int row = first + group * 64;
            load_slabs<Rows>(q + group * Rows::BYTES, q_map, rows.full(Once()), {0, row, head, batch});
            load_slabs<OutRows>(dout + group * OutRows::BYTES, dout_map, rows.full(Once()), {0, row, head, batch});
        }
        RingPlace<K_STAGES> at_k;
        RingPlace<V_STAGES> at_v;
#pragma unroll 1
        for (int tile = tiles_until(first + 128) - 1; tile >= 0; --tile) {
            keys.begin_fill(at_k, Keys::BYTES);
            load_slabs<Keys>(k + at_k.stage * Keys::BYTES, k_map, keys.full(at_k), {0, tile * BLOCK, key_head, batch});
            at_k.advance();
            values.begin_fill(at_v, Values::BYTES);
            load_slabs<Values>(v + at_v.stage * Values::BYTES, v_map, values.full(at_v),
                               {0, tile * BLOCK, key_head, batch});
            at_v.advance();
        }
    }

    /// A warp group's queries, from the last tile of keys to the first. `origins`, `deltas`: of the head's queries.
    __device__ __forceinline__ void attend(const float* origins, const float* deltas, const TensorMap& dq_map) const
    {
        const int group = __shfl_sync(ALL_LANES, threadIdx.x / 128, 0);
        const int row = first + group * 64;
        float origin[2], delta[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int query = row + accumulator_row() + 8 * r;
            origin[r] = query < scores.T ? origins[query] : -minus_infinity();
            delta[r] = query < scores.T ? deltas[query] : 0.0f;
        }
        float dq[COLS / 2];
#pragma unroll
        for (int i = 0; i < COLS / 2; ++i) dq[i] = 0.0f;
        const int own_tiles = row < scores.T ? tiles_until(row + 64) : 0;
        const int full_tiles = scores.keys_seen(row) / BLOCK;
        RingPlace<K_STAGES> at_k;
        RingPlace<V_STAGES> at_v;
        const auto step = [&](int tile, auto masked) {
            float s[BLOCK / 2], dp[BLOCK / 2];
            uint32_t ds[BLOCK / 16][4];
            const SharedAddress k_tile = k + at_k.stage * Keys::BYTES, v_tile = v + at_v.stage * Values::BYTES;
            keys.wait_full(at_k);
            wgmma_fence(s);
            multiply_over_columns<T, Rows, Keys>(s, Rows::rows_by_k(q + group * Rows::BYTES), k_tile);
            values.wait_full(at_v);
            wgmma_fence(dp);
            multiply_over_columns<T, OutRows, Values>(dp, OutRows::rows_by_k(dout + group * OutRows::BYTES), v_tile);
            wgmma_wait<1>(s);
            if (masked) {
                const int query = row + accumulator_row(), key = tile * BLOCK + accumulator_col();
                hide_beyond(s, {scores.beyond(query, key), scores.beyond(query + 8, key)});
            }
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) s[i] = scores.weight(s[i], origin[i / 2 % 2]);
            wgmma_wait<0>(dp);
            values.release(at_v);
            at_v.advance();
#pragma unroll
            for (int i = 0; i < BLOCK / 2; ++i) s[i] *= dp[i] - delta[i / 2 % 2];
            round_weights<T>(ds, s);
            wgmma_fence(dq, ds);
            add_product_over_rows<T, Keys>(dq, ds, k_tile);
            wgmma_commit();
            wgmma_wait<0>(dq, ds);
            keys.release(at_k);
            at_k.advance();
        };

        rows.wait_full(Once());
        int tile = tiles_until(first + 128) - 1;
#pragma unroll 1
        for (; tile >= own_tiles; --tile) {  // the block's, but not this group's
            keys.wait_full(at_k);
            keys.release(at_k);
            at_k.advance();
            values.wait_full(at_v);
            values.release(at_v);
            at_v.advance();
        }
#pragma unroll 1
        for (; tile >= full_tiles; --tile) step(tile, Known<true>());
#pragma unroll 1
        for (; tile >= 0; --tile) step(tile, Known<false>());
        store_marked<Rows, T>(dq, scores.scale, dq_map, {0, row, head, batch}, row < scores.T, q + group * Rows::BYTES, 0,
                              group);
        if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
    }
};
