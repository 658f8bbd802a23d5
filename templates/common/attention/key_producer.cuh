// The producer of blocks that keep keys and go over queries, in the gradients' kernels.
#pragma once

#include "common/attention/key_block.cuh"
#include "common/attention/ring.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/tile/slab_copy.cuh"

/// One thread: loads what the consumers will want, in their order, as soon as there is room: K and V, and for each tile of
/// `block` Q with its origins and dO with its deltas. Those are asked for after `begin()`, which is called once, OVERLAP as
/// late as that allows. FEW: registers are. `shared`: the tiles' places and barriers.
template <class Keys, class Values, class Queries, class Douts, int Q_STAGES, int DO_STAGES, bool OVERLAP, bool FEW,
          class Shared, class Block, class Begin>
__device__ __forceinline__ void produce_tiles(const Shared& shared, const Block& block, const TensorMap& q_map,
                                              const TensorMap& k_map, const TensorMap& v_map, const TensorMap& dout_map,
                                              const float* origins, const float* deltas, const Begin& begin)
{
    constexpr int ROWS = Queries::ROWS;
    prefetch(q_map);
    prefetch(k_map);
    prefetch(v_map);
    prefetch(dout_map);
    RingPlace<Q_STAGES> q;
    RingPlace<DO_STAGES> d;
    bool opening = true;
    shared.keys.begin_fill(RingPlace<1>(), Keys::BYTES);
    load_slabs<Keys>(shared.k, k_map, shared.keys.full(RingPlace<1>()), {0, block.key, block.key_head, block.batch});
    block.for_each_tile([&](int i, int tile) {
        const int head = block.key_head * block.heads + i;
        long long row;
        if constexpr (FEW)
            row = static_cast<long long>(first_number(block) + i * block.tiles + tile) * ROWS;
        else
            row = block.number(i, tile) * ROWS;
        shared.queries.begin_fill(q, Queries::BYTES + 4 * ROWS);
        load_slabs<Queries>(shared.q + q.stage * Queries::BYTES, q_map, shared.queries.full(q),
                            {0, tile * ROWS, head, block.batch});
        if constexpr (OVERLAP) {
            if (opening) {
                shared.values.begin_fill(RingPlace<1>(), Values::BYTES);
                load_slabs<Values>(shared.v, v_map, shared.values.full(RingPlace<1>()), {0, block.key, block.key_head, block.batch});
                begin();
                opening = false;
            }
        }
        bulk_load(shared.origins + q.stage * 4 * ROWS, origins + row, 4 * ROWS, shared.queries.full(q));
        q.advance();
        if constexpr (!OVERLAP) {
            if (opening) {
                shared.values.begin_fill(RingPlace<1>(), Values::BYTES);
                load_slabs<Values>(shared.v, v_map, shared.values.full(RingPlace<1>()), {0, block.key, block.key_head, block.batch});
                begin();
                opening = false;
            }
        }
        shared.douts.begin_fill(d, Douts::BYTES + 4 * ROWS);
        load_slabs<Douts>(shared.dout + d.stage * Douts::BYTES, dout_map, shared.douts.full(d),
                          {0, tile * ROWS, head, block.batch});
        bulk_load(shared.deltas + d.stage * 4 * ROWS, deltas + row, 4 * ROWS, shared.douts.full(d));
        d.advance();
    });
}
