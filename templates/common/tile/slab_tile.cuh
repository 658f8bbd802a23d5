// Tiles of 16-bit elements as TMA lays them into shared memory and wgmma reads them: slabs of 64 columns (32 or 16 where
// there are no more), one behind the other, a row of a slab a swizzled line of 128 (64, 32) bytes. A slab is a box of TMA.
#pragma once

#include "common/ptx/wgmma.cuh"

/// ROWS_ rows, a multiple of 8, of COLS columns, a multiple of 16; the last slab may be wider than what is left of them.
/// SLAB_: columns of a slab; narrower ones where nothing is to be left.
template <int ROWS_, int COLS, int SLAB_ = COLS <= 16 ? 16 : COLS <= 32 ? 32 : 64>
struct SlabTile {
    static constexpr int ROWS = ROWS_;
    static constexpr int SLAB = SLAB_;
    static constexpr int LINE = 2 * SLAB;                                // bytes, the swizzle's width
    static constexpr int SLABS = (COLS + SLAB - 1) / SLAB;
    static constexpr int SLAB_BYTES = ROWS * LINE;
    static constexpr int BYTES = SLABS * SLAB_BYTES;

    /// Where the 16 bytes of a row from column `col` on, a multiple of 8, lie from the tile's start.
    __device__ static constexpr int offset(int row, int col)
    {
        return swizzled<LINE>(col / SLAB * SLAB_BYTES + row * LINE + col % SLAB * 2);
    }

    /// The tile as an operand whose rows are M or N, its columns K; step i of wgmma's 16 is `along_columns(i)` on.
    __device__ static uint64_t rows_by_k(SharedAddress tile) { return wgmma_descriptor<LINE>(tile, 16, 8 * LINE); }
    __device__ static constexpr int along_columns(int step)
    {
        return step / (SLAB / 16) * SLAB_BYTES + step % (SLAB / 16) * 32;
    }

    /// The tile as an operand B whose rows are K and whose columns are N (transposed); step i is `along_rows(i)` on.
    __device__ static uint64_t k_by_columns(SharedAddress tile)
    {
        return wgmma_descriptor<LINE>(tile, SLAB_BYTES, 8 * LINE);
    }
    __device__ static constexpr int along_rows(int step) { return step * 16 * LINE; }

    /// Where such an operand begins that has columns from `col` on, a multiple of 8: all of them in one slab, or whole slabs.
    __device__ static constexpr int from_column(int col) { return col / SLAB * SLAB_BYTES + col % SLAB * 2; }
};
