// Which query and which head a row of a block's tile of queries belongs to.
#pragma once

#include "common/tile/row_access.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/tile/tile_copy.cuh"
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
/// tensor does not have. `vectors`: it allows vectors of Tile::WIDTH.
template <class Tile, int ROWS, int THREADS, bool PACKED, class T>
__device__ __forceinline__ void copy_mapped_rows(unsigned char* tile, const View<T, 4>& tensor, const RowMap<PACKED>& map,
                                                 int batch, int first, bool vectors)
{
    using Copier = TileCopier<Tile, THREADS>;
    constexpr int COLS = Copier::PIECE_COLS;
    constexpr int PIECES = Tile::COLS / COLS;  // of a row, each copied at once
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        const int row = i / PIECES;
        const int piece = i % PIECES;
        const bool has_piece = Copier::USED_PIECES == PIECES || piece < Copier::USED_PIECES;
        const bool valid = first + row < map.count && has_piece;
        const T* const from = map.at(tensor, batch, valid ? first + row : 0) + piece * COLS * tensor.stride[3];
        unsigned char* const to = tile + Tile::element(row, piece * COLS);
        const bool whole = Tile::USED_COLS % COLS == 0 || piece * COLS + COLS <= Tile::USED_COLS;
        if (vectors) {
            copy_piece<COLS, Copier::ALIGNED ? PieceWay::WHOLE : PieceWay::BY_REGISTERS>(shared_address(to), from, valid, whole);
        } else {
#pragma unroll
            for (int e = 0; e < COLS; ++e)
                reinterpret_cast<T*>(to)[e] = valid && (e == 0 || whole) ? from[e * tensor.stride[3]] : from_float<T>(0.0f);
        }
    }
}

/// Writes the first ROWS rows of a tile to rows of `tensor` from `first` on, those that exist. Called by THREADS
/// neighbouring threads, the first of them a multiple of THREADS.
template <class Tile, int ROWS, int THREADS, bool PACKED, class T>
__device__ __forceinline__ void write_mapped_rows(const View<T, 4>& tensor, const RowMap<PACKED>& map, int batch, int first,
                                                  const unsigned char* tile)
{
    constexpr int WIDTH = Tile::WIDTH;
    constexpr int PIECES = Tile::USED_COLS / WIDTH;  // of a row, each written by one access
    using Bits = typename Word<WIDTH * sizeof(T)>::type;
    const bool vectors = allows_vectors<WIDTH>(tensor);
#pragma unroll 4
    for (int i = threadIdx.x % THREADS; i < ROWS * PIECES; i += THREADS) {
        const int row = i / PIECES;
        const int col = i % PIECES * WIDTH;
        if (first + row >= map.count) break;
        const unsigned char* const part = tile + Tile::element(row, col);
        T* const result = map.at(tensor, batch, first + row) + col * tensor.stride[3];
        if (vectors) {  // as one word: of a vector of elements the compiler makes a store each
            *reinterpret_cast<Bits*>(result) = *reinterpret_cast<const Bits*>(part);
        } else {
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) result[e * tensor.stride[3]] = reinterpret_cast<const T*>(part)[e];
        }
    }
}
