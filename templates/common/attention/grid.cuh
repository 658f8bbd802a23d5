// Which blocks of a grid work on which head, and so which heads run at the same time and share the cache.
#pragma once

#include "common/ptx/opaque.cuh"

/// What a block works on. Heads of all batches lie along x, blocks of a head along y; groups of HEADS_AT_ONCE heads lie
/// along z, so that a group's blocks come one after the other. 0: all heads are one group.
template <int HEADS_AT_ONCE>
struct BlockPlace {
    int batch;
    int head;
    int block;  // of the head

    /// Where a batch has `heads` heads; computed every time it is asked for. In a last group that is not full batches
    /// beyond the last one appear.
    static __device__ __forceinline__ BlockPlace of_block(int heads)
    {
        const int matrix =
            HEADS_AT_ONCE == 0 ? opaque(blockIdx.x) : opaque(blockIdx.z * HEADS_AT_ONCE + blockIdx.x);
        return {matrix / heads, matrix % heads, static_cast<int>(blockIdx.y)};
    }
};

/// The same where blocks of a head lie along y, or (BLOCKS_FIRST) along x with heads along y and batches along z; SPLIT
/// blocks share out the keys of the same rows. HEAVY_FIRST: a head's last rows first, which see the most keys.
template <bool BLOCKS_FIRST, int HEADS_AT_ONCE, bool HEAVY_FIRST, int SPLIT>
struct SplitPlace {
    int batch;
    int head;
    int block;  // of the head's rows
    int split;

    /// Where a batch has `heads` heads. ANEW: computed once more, so that nothing is kept since the last time.
    template <bool ANEW>
    static __device__ __forceinline__ SplitPlace of_block(int heads)
    {
        const auto number = [](unsigned x) -> unsigned { return ANEW ? opaque(x) : x; };
        const unsigned at = number(BLOCKS_FIRST ? blockIdx.x : blockIdx.y);
        const int index = HEAVY_FIRST ? (BLOCKS_FIRST ? gridDim.x : gridDim.y) - 1 - at : at;
        SplitPlace place;
        if constexpr (BLOCKS_FIRST) {
            place.batch = number(blockIdx.z);
            place.head = number(blockIdx.y);
        } else {
            const unsigned matrix =
                HEADS_AT_ONCE == 0 ? number(blockIdx.x) : number(blockIdx.z) * HEADS_AT_ONCE + number(blockIdx.x);
            place.batch = matrix / heads;
            place.head = matrix % heads;
        }
        place.block = SPLIT > 1 ? index / SPLIT : index;
        place.split = SPLIT > 1 ? index % SPLIT : 0;
        return place;
    }
};
