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

/// The same for a row that has HS columns, of a tile that has HS_TILE: those beyond are not written.
template <int HS_TILE, int HS, int N, class T>
__device__ __forceinline__ void store_part(T* row, long long col_stride, int col, const float (&from)[N], bool vectors)
{
    if (HS == HS_TILE || col + N <= HS) {
        store_row(row, col_stride, col, from, vectors);
    } else {
#pragma unroll
        for (int e = 0; e < N; ++e)
            if (col + e < HS) row[(col + e) * col_stride] = from_float<T>(from[e]);
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

/// A block of some `rows` rows, BLOCK_ROWS each, of NH heads and any number of batches. x of the grid is their product,
/// since y and z end at 65535.
template <int BLOCK_ROWS>
__device__ __forceinline__ RowPlace first_row_of_block(int NH, int rows)
{
    const unsigned blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;  // of a head
    const unsigned matrix = blockIdx.x / blocks;
    return {static_cast<int>(matrix / NH), static_cast<int>(matrix % NH),
            static_cast<int>(blockIdx.x % blocks * BLOCK_ROWS)};
}

/// The row that LANES neighbouring threads of a block of THREADS work on.
template <int THREADS, int LANES>
__device__ __forceinline__ RowPlace row_of_thread(int NH, int rows)
{
    const RowPlace first = first_row_of_block<THREADS / LANES>(NH, rows);
    return {first.b, first.h, first.t + static_cast<int>(threadIdx.x) / LANES};
}

template <class T>
__device__ __forceinline__ T* row_of(const View<T, 4>& tensor, const RowPlace& place)
{
    return matrix_of(tensor, place.b, place.h) + place.t * tensor.stride[2];
}
