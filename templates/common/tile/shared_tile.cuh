// Tiles of 16-bit elements or of floats in shared memory, laid out so that neither 16-byte copies nor ldmatrix meet a
// bank conflict.
#pragma once

/// The largest power of two, at most `most`, that divides `cols`: as many elements of rows of `cols`, which lie one after
/// the other, can be moved by one access, since rows begin at such multiples.
__host__ __device__ constexpr int row_width(int cols, int most) { return cols % most == 0 ? most : row_width(cols, most / 2); }

/// Rows of COLS elements, whole pairs of 16-byte chunks. Eight rows of one column of chunks lie in all 32 banks: either
/// chunks change places within a row (XOR with the row number; where a row is an odd number of pairs beyond one, rows
/// still meet in pairs), or rows are a chunk longer. A matrix may have fewer columns: the first USED_COLS, behind which
/// copies put zeros.
template <int COLS_, bool SWIZZLED_, int ELEMENT_BYTES = 2, int USED_COLS_ = COLS_>
struct SharedTile {
    static constexpr int COLS = COLS_;
    static constexpr int USED_COLS = USED_COLS_;
    static constexpr bool SWIZZLED = SWIZZLED_;
    static constexpr int CHUNK_COLS = 16 / ELEMENT_BYTES;
    static_assert(COLS % (2 * CHUNK_COLS) == 0, "rows are whole pairs of 16-byte chunks");
    static_assert(USED_COLS <= COLS, "a tile holds the rows of its matrix");

    static constexpr int CHUNKS = COLS / CHUNK_COLS;
    static constexpr int USED_CHUNKS = (USED_COLS + CHUNK_COLS - 1) / CHUNK_COLS;  // that hold columns of the matrix
    static constexpr int USED_PAIRS = (USED_CHUNKS + 1) / 2;  // of chunks: steps of a product along the rows
    static constexpr int WIDTH = row_width(USED_COLS, CHUNK_COLS);  // elements of the matrix that one access moves
    static constexpr int ROW_BYTES = 16 * (CHUNKS + (SWIZZLED ? 0 : 1));
    static constexpr int SPAN = CHUNKS % 8 == 0 ? 8 : CHUNKS % 4 == 0 ? 4 : 2;  // chunks that change places
    static constexpr int ROWS_ALIKE = 8 / SPAN;  // neighbouring rows with the same exchange: they start in other banks

    static __host__ __device__ constexpr int bytes(int rows) { return rows * ROW_BYTES; }

    /// Byte offset of a chunk.
    static __device__ __forceinline__ int offset(int row, int chunk)
    {
        const int place = SWIZZLED ? chunk ^ (row / ROWS_ALIKE % SPAN) : chunk;
        return row * ROW_BYTES + place * 16;
    }

    /// Byte offset of an element.
    static __device__ __forceinline__ int element(int row, int col)
    {
        return offset(row, col / CHUNK_COLS) + col % CHUNK_COLS * ELEMENT_BYTES;
    }

    /// From the address (or offset in the tile) of a row's chunk to that of the chunk `by` further in the same row, where
    /// `by` is a multiple of a power of two that is larger than the chunk's own number. Tiles start at multiples of 128.
    template <class Address>
    static __device__ __forceinline__ Address advance(Address address, int by)
    {
        if constexpr (!SWIZZLED) return address + by * 16;
        return (address ^ (by % SPAN * 16)) + by / SPAN * SPAN * 16;
    }
};

template <int COLS, bool SWIZZLED, int USED_COLS = COLS>
using FloatTile = SharedTile<COLS, SWIZZLED, 4, USED_COLS>;
