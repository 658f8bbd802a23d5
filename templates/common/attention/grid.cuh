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
