// Sums of products of two tensors' rows, as dO * O of the gradients.
#pragma once

#include "common/tile/rows.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

/// One lane's share of the sum of x * y over a row of HS elements, of which LANES neighbouring lanes take VEC by turns.
template <int HS, int VEC, int LANES, class T>
__device__ __forceinline__ float dot_of_lane(const View<const T, 4>& x, const View<const T, 4>& y,
                                             const RowPlace& place, bool vectors)
{
    float sum = 0.0f;
    for (int col = threadIdx.x % LANES * VEC; col < HS; col += LANES * VEC) {
        float a[VEC];
        float b[VEC];
        load_row(row_of(x, place), x.stride[3], col, a, vectors);
        load_row(row_of(y, place), y.stride[3], col, b, vectors);
#pragma unroll
        for (int e = 0; e < VEC; ++e) sum += a[e] * b[e];
    }
    return sum;
}

/// The sum of x * y over a row of HS elements, by LANES neighbouring lanes; all of them get it. Every lane of the warp
/// takes part in the exchange, also those of which `exists` is false.
template <int HS, int VEC, int LANES, class T>
__device__ __forceinline__ float dot_of_rows(const View<const T, 4>& x, const View<const T, 4>& y, const RowPlace& place,
                                             bool exists)
{
    const bool vectors = allows_vectors<VEC>(x) && allows_vectors<VEC>(y);
    return reduce_lanes<Sum, 1, LANES>(exists ? dot_of_lane<HS, VEC, LANES>(x, y, place, vectors) : 0.0f);
}
