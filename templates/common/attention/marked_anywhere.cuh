// Gradients on their way to rows that begin at any element, marked where they are to be computed again.
#pragma once

#include "common/attention/marked_gradients.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/rows_anywhere.cuh"
#include "common/tile/slab_copy.cuh"

/// As `store_marked` with a tensor map, by ordinary stores: a warp group's accumulators, 64 rows of a gradient of HS columns,
/// by way of 64 rows of a tile from `row` on to the tensor's rows from `at` on, of those before row `end`.
template <class Tile, int HS, class T, int REGISTERS>
__device__ __forceinline__ void store_marked(float (&x)[REGISTERS], float factor, const View<T, 4>& to, const RowPlace& at,
                                             int end, SharedAddress tile, int row)
{
    mark_not_finite(x);
    place_accumulators<Tile, T>(tile, row, x, factor);
    __syncwarp();  // its 16 rows are a warp's own
    const int own = opaque_thread() % 128 / 32 * 16;
    write_rows<Tile, HS>(tile, row + own, 0, row_of(to, RowPlace{at.b, at.h, at.t + own}), to.stride[2], to.stride[3],
                         end - at.t - own);
}
