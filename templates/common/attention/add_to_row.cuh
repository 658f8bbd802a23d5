// Accumulation into a gradient that several blocks add to.
#pragma once

#include "common/ptx/vector_add.cuh"

/// Adds N neighbouring floats (1, 2 or 4) to a row from column `col` on, where other blocks add as well: their order is
/// left to chance. `vectors`: the row is contiguous and aligned to N floats.
template <int N>
__device__ __forceinline__ void add_to_row(float* row, long long col_stride, int col, const float (&x)[N], bool vectors)
{
    if constexpr (ADDS_VECTORS && N > 1) {
        if (vectors) {
            add_vector(row + col, x);
            return;
        }
    }
    (void)vectors;
#pragma unroll
    for (int e = 0; e < N; ++e) atomicAdd(row + (col + e) * col_stride, x[e]);
}
