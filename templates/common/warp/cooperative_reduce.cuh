// The reduction of `reduce_lanes` by way of cooperative groups.
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

/// Combines x over groups of LANES neighbouring lanes; all of them get the result.
template <class Op, int LANES>
__device__ __forceinline__ float reduce_tile(float x)
{
    const auto tile = cooperative_groups::tiled_partition<LANES>(cooperative_groups::this_thread_block());
    return cooperative_groups::reduce(tile, x, [](float a, float b) { return Op::combine(a, b); });
}
