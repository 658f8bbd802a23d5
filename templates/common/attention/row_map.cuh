// Which query and which head a row of a block's tile of queries belongs to.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// The rows that blocks with one key head share out: the queries of one head; or, PACKED, those of all the heads that
/// share the key head, the heads of a query next to each other: row = query * group + head. So keys and values are
/// read once for the group, and a tile is full although queries are few.
template <bool PACKED>
struct RowMap {
    int first_head;
    int group;  // heads
    int count;  // rows

    /// `head`: of the queries; PACKED: of the keys, each of which `group_` heads share.
    __device__ __forceinline__ RowMap(int head, int group_, int T)
        : first_head(PACKED ? head * group_ : head), group(PACKED ? group_ : 1), count(T * group)
    {
    }

    __device__ __forceinline__ int query(int row) const { return PACKED ? row / group : row; }
    __device__ __forceinline__ int head(int row) const { return PACKED ? first_head + row % group : first_head; }

    /// First element of a row.
    template <class T>
    __device__ __forceinline__ T* at(const View<T, 4>& tensor, int batch, int row) const
    {
        return matrix_of(tensor, batch, head(row)) + query(row) * tensor.stride[2];
    }
};

/// Starts to copy ROWS rows of `tensor` from row `first` on; those past the last become 0, and columns that the
/// tensor does not have. `vectors`: it allows vectors of 8 elements.
template <class Tile, int ROWS, int THREADS, bool PACKED, class T>
__device__ __forceinline__ void copy_mapped_rows(unsigned char* tile, const View<T, 4>& tensor, const RowMap<PACKED>& map,
                                                 int batch, int first, bool vectors)
{
    for (int i = threadIdx.x; i < ROWS * Tile::CHUNKS; i += THREADS) {
        const int row = i / Tile::CHUNKS;
        const int chunk = i % Tile::CHUNKS;
        const bool has_chunk = Tile::USED_CHUNKS == Tile::CHUNKS || chunk < Tile::USED_CHUNKS;
        const bool valid = first + row < map.count && has_chunk;
        const T* const from = map.at(tensor, batch, valid ? first + row : 0) + chunk * 8 * tensor.stride[3];
        unsigned char* const to = tile + Tile::offset(row, chunk);
        if (vectors) {
            copy_async(shared_address(to), from, valid);
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e)
                reinterpret_cast<T*>(to)[e] = valid ? from[e * tensor.stride[3]] : from_float<T>(0.0f);
        }
    }
}

/// Writes the first ROWS rows of a tile to rows of `tensor` from `first` on, those that exist. Called by THREADS
/// neighbouring threads, the first of them a multiple of THREADS.
template <class Tile, int ROWS, int THREADS, bool PACKED, class T>
__device__ __forceinline__ void write_mapped_rows(const View<T, 4>& tensor, const RowMap<PACKED>& map, int batch, int first,
                                                  const unsigned char* tile)
{
    const bool vectors = allows_vectors<8>(tensor);
#pragma unroll 4
    for (int i = threadIdx.x % THREADS; i < ROWS * Tile::USED_CHUNKS; i += THREADS) {
        const int row = i / Tile::USED_CHUNKS;
        const int chunk = i % Tile::USED_CHUNKS;
        if (first + row >= map.count) break;
        const unsigned char* const part = tile + Tile::offset(row, chunk);
        T* const result = map.at(tensor, batch, first + row) + chunk * 8 * tensor.stride[3];
        if (vectors) {  // as one word: of a vector of elements the compiler makes a store each
            *reinterpret_cast<uint4*>(result) = *reinterpret_cast<const uint4*>(part);
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) result[e * tensor.stride[3]] = reinterpret_cast<const T*>(part)[e];
        }
    }
}
