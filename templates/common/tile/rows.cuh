// Rows of (B, NH, T, HS) tensors: where they begin, their elements by vectors or one by one.
#pragma once

#include "common/types.cuh"
#include "common/view.cuh"

/// to[0..N) = N neighbouring elements of a tensor's row from column `col` on, as float.
template <int N, class T>
__device__ __forceinline__ void load_row(const T* row, long long col_stride, int col, float (&to)[N], bool vectors)
{
    if (vectors) {
        load<N>(row + col, to);
    } else {
#pragma unroll
        for (int e = 0; e < N; ++e) to[e] = to_float(row[(col + e) * col_stride]);
    }
}

/// Writes N neighbouring elements of a tensor's row from column `col` on.
template <int N, class T>
__device__ __forceinline__ void store_row(T* row, long long col_stride, int col, const float (&from)[N], bool vectors)
{
    if (vectors) {
        store<N>(row + col, from);
    } else {
#pragma unroll
        for (int e = 0; e < N; ++e) row[(col + e) * col_stride] = from_float<T>(from[e]);
    }
}

/// A row of a (B, NH, T, HS) tensor.
struct RowPlace {
    int b;
    int h;
    int t;

    /// Its number among all rows, which is where (B, NH, T) tensors have its value.
    __device__ __forceinline__ long long number(int NH, int T) const
    {
        return (static_cast<long long>(b) * NH + h) * T + t;
    }
};

/// The row that LANES neighbouring threads of a block of THREADS work on; grid: rows of a matrix, heads, batches.
template <int THREADS, int LANES>
__device__ __forceinline__ RowPlace row_of_thread()
{
    return {static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y),
            static_cast<int>(blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES)};
}

template <class T>
__device__ __forceinline__ T* row_of(const View<T, 4>& tensor, const RowPlace& place)
{
    return matrix_of(tensor, place.b, place.h) + place.t * tensor.stride[2];
}
