// Tiles of queries on their way to a block of keys.
#pragma once

#include "common/attention/gradient_operands.cuh"
#include "common/attention/row_sums.cuh"
#include "common/ptx/async_copy.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/tile/tile_copy.cuh"
#include "common/view.cuh"

/// Q, dO and the row sums of ROWS queries a step, for one query head after the other that shares the block's keys. STEP:
/// from one step's first query to the next one's, ROWS or -ROWS. dO lies in ValueTiles.
template <class Tile, int ROWS, int STEP, int THREADS, class Operands, class ValueTile = Tile>
struct QueryStream {
    const Operands& in;
    unsigned char* q;     // tiles, one a stage
    unsigned char* dout;  // tiles, one a stage
    unsigned char* sums;  // of the tiles' queries
    int batch;
    int head_end;
    int query_first;  // of the first step of a head
    int query_last;   // of its last step
    TileCopier<Tile, THREADS> copier;
    TileCopier<ValueTile, THREADS> value_copier = copier_beside<ValueTile>(copier);
    bool vectors_q = allows_vectors<Tile::WIDTH>(in.q);
    bool vectors_dout = allows_vectors<ValueTile::WIDTH>(in.dout);

    /// Starts to copy a step's tiles.
    __device__ __forceinline__ void copy(int head, int query, int stage) const
    {
        const int batch_now = opaque(batch);  // addresses are computed when they are used, and not kept in registers
        const int offset = stage * Tile::bytes(ROWS);
        const int value_offset = stage * ValueTile::bytes(ROWS);
        copy_rows<ROWS>(copier, q + offset, in.q, batch_now, head, query, in.T, vectors_q);
        copy_rows<ROWS>(value_copier, dout + value_offset, in.dout, batch_now, head, query, in.T, vectors_dout);
        if (threadIdx.x < ROWS / 2)  // two queries a copy
            copy_async(shared_address(sums) + (stage * ROWS + 2 * threadIdx.x) * sizeof(RowSums),
                       in.sums_of(batch_now, head, query + 2 * threadIdx.x), true);
    }

    /// The step after that of (head, query), if there is one.
    __device__ __forceinline__ void copy_after(int head, int query, int stage) const
    {
        const bool last = query == query_last;
        if (!last || head + 1 < head_end) copy(last ? head + 1 : head, last ? query_first : query + STEP, stage);
        commit_copies();
    }
};
