// Copies of tiles of a (B, NH, T, HS) tensor's matrices to shared memory and back, by all threads of a block.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/ptx/opaque.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// A thread's part in copying tiles: chunks of every ROW_PASS-th row, all of them at distances from its first one that
/// the compiler knows, in shared memory, or that are the same for all threads, in the matrix.
template <class Tile, int THREADS>
struct TileCopier {
    static constexpr int COL_PASS = Tile::SPAN * 8 <= THREADS ? Tile::SPAN : THREADS / 8;  // chunks of a row at a time
    static constexpr int ROW_PASS = THREADS / COL_PASS;  // a multiple of 8, after which chunks lie alike

    int offset = opaque(Tile::offset(threadIdx.x / COL_PASS, threadIdx.x % COL_PASS));  // of the first chunk

    __device__ __forceinline__ int row() const { return static_cast<unsigned>(offset) / Tile::ROW_BYTES; }

    /// This thread's first chunk in the tile whose first row is row `first` of a matrix.
    template <class T>
    __device__ __forceinline__ const T* start(const View<T, 4>& tensor, const T* matrix, int first) const
    {
        return matrix + (first + row()) * tensor.stride[2] + threadIdx.x % COL_PASS * Tile::CHUNK_COLS;
    }

    /// Starts to copy ROWS rows; `from` is this thread's `start`. Rows from `rows` on become 0, and columns that the matrix
    /// does not have, so that whatever lies in memory beyond it cannot leak into products. `vectors`: the tensor allows
    /// vectors of a chunk.
    template <int ROWS, class T>
    __device__ __forceinline__ void copy(unsigned char* tile, const T* from, const View<T, 4>& tensor, int rows,
                                         bool vectors) const
    {
        if (vectors)
            copy_chunks<ROWS>(shared_address(tile), from, tensor.stride[2], rows - row());
        else
            copy_elements<ROWS>(tile, from - row() * tensor.stride[2] - threadIdx.x % COL_PASS * Tile::CHUNK_COLS,
                                tensor, rows);
    }

    template <int ROWS, class T>
    __device__ __forceinline__ void copy_chunks(SharedAddress tile, const T* from, long long row_stride, int rows) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r += ROW_PASS) {
            if (ROWS % ROW_PASS != 0 && r + row() >= ROWS) break;
#pragma unroll
            for (int c = 0; c < Tile::CHUNKS; c += COL_PASS)
                copy_async(tile + Tile::advance(offset, c) + Tile::bytes(r), from + c * Tile::CHUNK_COLS,
                           r < rows && has_chunk(c));
            from += ROW_PASS * row_stride;
        }
    }

    /// Whether the matrix has this thread's chunk of the pass that begins with chunk `c`.
    static __device__ __forceinline__ bool has_chunk(int c)
    {
        return c + COL_PASS <= Tile::USED_CHUNKS || static_cast<int>(threadIdx.x % COL_PASS) + c < Tile::USED_CHUNKS;
    }

    template <int ROWS, class T>
    static __device__ __forceinline__ void copy_elements(unsigned char* tile, const T* from, const View<T, 4>& tensor,
                                                         int rows)
    {
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * Tile::COLS; i += THREADS) {
            const int r = i / Tile::COLS;
            const int col = i % Tile::COLS;
            T* const to = reinterpret_cast<T*>(tile + Tile::offset(r, col / Tile::CHUNK_COLS)) + col % Tile::CHUNK_COLS;
            const bool exists = r < rows && (Tile::USED_COLS == Tile::COLS || col < Tile::USED_COLS);
            *to = exists ? from[r * tensor.stride[2] + col * tensor.stride[3]] : from_float<T>(0.0f);
        }
    }
};

/// What copies tiles that lie beside those of another one: where rows are as long, with the same part for each thread.
template <class Tile, class Other, int THREADS>
__device__ __forceinline__ TileCopier<Tile, THREADS> copier_beside(const TileCopier<Other, THREADS>& other)
{
    if constexpr (Tile::ROW_BYTES == Other::ROW_BYTES)
        return {other.offset};
    else
        return {};
}

/// Starts to copy ROWS rows of a head from row `first` on; what the matrix does not have becomes 0, as rows from `rows` on.
template <int ROWS, class Tile, int THREADS, class T>
__device__ __forceinline__ void copy_rows(const TileCopier<Tile, THREADS>& copier, unsigned char* tile,
                                          const View<T, 4>& tensor, int batch, int head, int first, int rows,
                                          bool vectors)
{
    copier.template copy<ROWS>(tile, copier.start(tensor, matrix_of(tensor, batch, head), first), tensor, rows - first,
                               vectors);
}

/// Writes the first `rows` of a tile's ROWS rows to a matrix; called by all THREADS threads.
template <class T, class Tile, int ROWS, int THREADS>
__device__ __forceinline__ void write_rows(T* to, const View<T, 4>& tensor, int rows, const unsigned char* tile)
{
    const bool vectors = allows_vectors<8>(tensor);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * Tile::USED_CHUNKS; i += THREADS) {
        const int row = i / Tile::USED_CHUNKS;
        const int chunk = i % Tile::USED_CHUNKS;
        if (row >= rows) break;
        const auto part = *reinterpret_cast<const Vector<T, 8>*>(tile + Tile::offset(row, chunk));
        T* const result = to + row * tensor.stride[2] + chunk * 8 * tensor.stride[3];
        if (vectors) {
            *reinterpret_cast<Vector<T, 8>*>(result) = part;
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) result[e * tensor.stride[3]] = part.at[e];
        }
    }
}
