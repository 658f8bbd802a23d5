// Copies of tiles of a (B, NH, T, HS) tensor's matrices to shared memory and back, by all threads of a block.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/ptx/opaque.cuh"
#include "common/tile/row_access.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// How pieces of rows get to shared memory: asynchronously, whole; the same, of the last one the first element alone; or
/// two elements of 16 bits, where they lie at no multiple of 4 bytes, through registers.
enum class PieceWay { WHOLE, IN_PART, BY_REGISTERS };

/// Starts to copy a piece of a row, COLS elements; writes zeros where it is not `valid`, and for its second element where
/// it is not `whole`.
template <int COLS, PieceWay WAY, class T>
__device__ __forceinline__ void copy_piece(SharedAddress to, const T* from, bool valid, bool whole)
{
    static_assert(WAY == PieceWay::WHOLE || COLS * sizeof(T) == 4, "two elements");
    if constexpr (WAY == PieceWay::WHOLE) {
        copy_async<COLS * sizeof(T)>(to, from, valid);
    } else if constexpr (WAY == PieceWay::IN_PART) {
        copy_async_part(to, from, !valid ? 0 : whole ? 4 : 2);
    } else {
        const uint16_t* const source = reinterpret_cast<const uint16_t*>(from);
        uint32_t low = 0;
        uint32_t high = 0;
        if (valid) low = source[0];
        if (valid && whole) high = source[1];
        store_later(to, low | high << 16);
    }
}

/// A thread's part in copying tiles: pieces of every ROW_PASS-th row, all of them at distances from its first one that
/// the compiler knows, in shared memory, or that are the same for all threads, in the matrix. A piece is a chunk where
/// rows begin at multiples of one; else it is what one access moves, and neighbouring threads have a chunk's pieces.
template <class Tile, int THREADS>
struct TileCopier {
    static constexpr bool ALIGNED = Tile::WIDTH * 16 / Tile::CHUNK_COLS >= 4;  // bytes, for an asynchronous copy
    static constexpr int PIECE_COLS = ALIGNED ? Tile::WIDTH : 2;
    static constexpr int PIECES = Tile::CHUNK_COLS / PIECE_COLS;  // of a chunk
    static constexpr int USED_PIECES = (Tile::USED_COLS + PIECE_COLS - 1) / PIECE_COLS;  // of a row

    /// Chunks of a row at a time: as many as change places, if they leave 8 rows, or a multiple, to the threads.
    static constexpr int col_pass(int most)
    {
        return THREADS % (most * PIECES * 8) == 0 ? most : col_pass(most / 2);
    }
    static constexpr int COL_PASS = col_pass(Tile::SPAN);
    static constexpr int ROW_PIECES = COL_PASS * PIECES;   // and pieces
    static constexpr int ROW_PASS = THREADS / ROW_PIECES;  // a multiple of 8, after which chunks lie alike

    int offset = opaque(Tile::offset(first_row(threadIdx.x / ROW_PIECES), threadIdx.x % ROW_PIECES / PIECES) +
                        threadIdx.x % PIECES * (16 / PIECES));  // of the first piece

    /// The first row of the n-th threads that have pieces of one: of eight, in an order in which those that one access
    /// writes to lie in different banks.
    static __device__ __forceinline__ int first_row(int n)
    {
        if (PIECES == 1) return n;
        const int bits[3] = {n % 2, n / 2 % 2, n / 4 % 2};
        const bool in_pairs = Tile::SWIZZLED && Tile::SPAN == 4;  // one row of two begins in the second half of the banks
        return n / 8 * 8 + (in_pairs ? bits[0] + 4 * bits[1] + 2 * bits[2] : 4 * bits[0] + 2 * bits[1] + bits[2]);
    }

    __device__ __forceinline__ int row() const { return static_cast<unsigned>(offset) / Tile::ROW_BYTES; }

    /// This thread's first piece in the tile whose first row is row `first` of a matrix.
    template <class T>
    __device__ __forceinline__ const T* start(const View<T, 4>& tensor, const T* matrix, int first) const
    {
        return matrix + (first + row()) * tensor.stride[2] + threadIdx.x % ROW_PIECES * PIECE_COLS;
    }

    /// Starts to copy ROWS rows; `from` is this thread's `start`. Rows from `rows` on become 0, and columns that the matrix
    /// does not have, so that whatever lies in memory beyond it cannot leak into products. `vectors`: the tensor allows
    /// vectors of Tile::WIDTH.
    template <int ROWS, class T>
    __device__ __forceinline__ void copy(unsigned char* tile, const T* from, const View<T, 4>& tensor, int rows,
                                         bool vectors) const
    {
        if (vectors)
            copy_pieces<ROWS>(shared_address(tile), from, tensor.stride[2], rows - row());
        else
            copy_elements<ROWS>(tile, from - row() * tensor.stride[2] - threadIdx.x % ROW_PIECES * PIECE_COLS, tensor,
                                rows);
    }

    /// Of rows of an odd number of 16-bit elements, a thread's begin all at multiples of 4 bytes or all between them.
    template <int ROWS, class T>
    __device__ __forceinline__ void copy_pieces(SharedAddress tile, const T* from, long long row_stride, int rows) const
    {
        if constexpr (ALIGNED)
            copy_pieces<ROWS, PieceWay::WHOLE>(tile, from, row_stride, rows);
        else if (reinterpret_cast<uintptr_t>(from) % 4 == 0)
            copy_pieces<ROWS, PieceWay::IN_PART>(tile, from, row_stride, rows);
        else
            copy_pieces<ROWS, PieceWay::BY_REGISTERS>(tile, from, row_stride, rows);
    }

    template <int ROWS, PieceWay WAY, class T>
    __device__ __forceinline__ void copy_pieces(SharedAddress tile, const T* from, long long row_stride, int rows) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r += ROW_PASS) {
            if (ROWS % ROW_PASS != 0 && r + row() >= ROWS) break;
#pragma unroll
            for (int c = 0; c < Tile::CHUNKS; c += COL_PASS)
                copy_piece<PIECE_COLS, WAY>(tile + Tile::advance(offset, c) + Tile::bytes(r), from + c * Tile::CHUNK_COLS,
                                            r < rows && has_piece(c), has_piece<2>(c));
            from += ROW_PASS * row_stride;
        }
    }

    /// Whether the matrix has this thread's piece of the pass that begins with chunk `c`, or the first ELEMENTS of it.
    template <int ELEMENTS = 1>
    static __device__ __forceinline__ bool has_piece(int c)
    {
        constexpr int PRESENT = ELEMENTS == 1 ? USED_PIECES : (Tile::USED_COLS - ELEMENTS + PIECE_COLS) / PIECE_COLS;
        return (c + COL_PASS) * PIECES <= PRESENT || static_cast<int>(threadIdx.x % ROW_PIECES) + c * PIECES < PRESENT;
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
    constexpr bool SAME_ROWS = Tile::ROW_BYTES == Other::ROW_BYTES && Tile::WIDTH == Other::WIDTH;
    if constexpr (SAME_ROWS)
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

/// Writes a chunk of 8 elements of 16 bits, packed, to a row of a matrix from column `col` on: what the row has of it.
/// `vectors`: the tensor allows vectors of Tile::WIDTH.
template <class Tile, class T>
__device__ __forceinline__ void write_chunk(T* row, long long col_stride, int col, const uint32_t (&x)[4], bool vectors)
{
    constexpr int WIDTH = Tile::WIDTH;
    T* const to = row + col * col_stride;
    if (vectors) {  // never taken apart, as `=` is
#pragma unroll
        for (int e = 0; e < 8; e += WIDTH) {
            if (Tile::USED_COLS % 8 != 0 && col + e >= Tile::USED_COLS) break;
            if constexpr (WIDTH == 8)
                __stwb(reinterpret_cast<uint4*>(to), make_uint4(x[0], x[1], x[2], x[3]));
            else if constexpr (WIDTH == 4)
                __stwb(reinterpret_cast<uint2*>(to + e), make_uint2(x[e / 2], x[e / 2 + 1]));
            else if constexpr (WIDTH == 2)
                __stwb(reinterpret_cast<unsigned int*>(to + e), x[e / 2]);
            else
                to[e] = half_of<T>(x[e / 2], e % 2);
        }
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            if (Tile::USED_COLS % 8 != 0 && col + e >= Tile::USED_COLS) break;
            to[e * col_stride] = half_of<T>(x[e / 2], e % 2);
        }
    }
}

/// Writes the first `rows` of a tile's ROWS rows to a matrix; called by all THREADS threads.
template <class T, class Tile, int ROWS, int THREADS>
__device__ __forceinline__ void write_rows(T* to, const View<T, 4>& tensor, int rows, const unsigned char* tile)
{
    constexpr int WIDTH = Tile::WIDTH;
    constexpr int PIECES = Tile::USED_COLS / WIDTH;  // of a row, each written by one access
    using Bits = typename Word<WIDTH * sizeof(T)>::type;
    const bool vectors = allows_vectors<WIDTH>(tensor);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        const int row = i / PIECES;
        const int col = i % PIECES * WIDTH;
        if (row >= rows) break;
        const unsigned char* const part = tile + Tile::element(row, col);
        T* const result = to + row * tensor.stride[2] + col * tensor.stride[3];
        if (vectors) {
            *reinterpret_cast<Bits*>(result) = *reinterpret_cast<const Bits*>(part);
        } else {
#pragma unroll
            for (int e = 0; e < WIDTH; ++e) result[e * tensor.stride[3]] = reinterpret_cast<const T*>(part)[e];
        }
    }
}
