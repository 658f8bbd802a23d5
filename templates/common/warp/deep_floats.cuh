// Tiles of floats in shared memory as operands of tf32 products. Where the depth of a product runs along the rows of a
// tile (Q K^T), ldmatrix reads them as it reads 16-bit ones (ldmatrix.cuh: a chunk is 4 columns in place of 8). Where it
// runs down the rows (P V), nothing transposes 32-bit elements: lanes read them one by one, or vectors along the rows,
// whose elements go to different products.
#pragma once

#include "common/ptx/opaque.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/warp/tf32_operands.cuh"

/// This lane's place in 8 rows of a FloatTile that are read as B operands, 8 deep: column g of rows 2t and 2t + 1 (the
/// order in which D is an A operand, mma_tf32.cuh). A warp's read meets no bank conflict.
template <class Tile>
struct DeepFloats {
    static_assert(!Tile::SWIZZLED || Tile::SPAN == 8, "neighbouring rows exchange chunks differently");

    int even = opaque(Tile::offset(threadIdx.x % 4 * 2, threadIdx.x % 32 / 16) + threadIdx.x / 4 % 4 * 4);

    /// From the place in row 2t to that in row 2t + 1.
    __device__ __forceinline__ int odd() const { return (Tile::SWIZZLED ? even ^ 16 : even) + Tile::ROW_BYTES; }

    /// Columns 8 * n to 8 * n + 7 of the rows from `rows` on, the address of a multiple of 8 rows of a tile.
    template <class Operand>
    __device__ __forceinline__ void read(Operand& b, const unsigned char* rows, int n) const
    {
        const uint32_t bits[2] = {*reinterpret_cast<const uint32_t*>(rows + Tile::advance(even, 2 * n)),
                                  *reinterpret_cast<const uint32_t*>(rows + Tile::advance(odd(), 2 * n))};
        b.set(bits);
    }
};

/// The same by vectors: columns 4g to 4g + 3 of every 32. A quarter of the reads; but an operand wants its two rows in
/// neighbouring registers, and each element costs a move or two to get there.
template <class Tile>
struct DeepRows {
    static constexpr int OPERANDS = 4;  // of 8 columns each, from one read
    static constexpr int COLS = 32;     // of all of them

    int even = opaque(Tile::offset(threadIdx.x % 4 * 2, threadIdx.x % 32 / 4));
    int odd = opaque(Tile::offset(threadIdx.x % 4 * 2 + 1, threadIdx.x % 32 / 4));

    /// Columns 32 * group to 32 * group + 31 of the rows from `rows` on, the address of a multiple of 8 rows of a tile.
    /// Column n of operand j is column 4n + j of them, so that a lane's D of operands 0 to 3 is 8 neighbouring columns
    /// from 8t on: d[j][0] is column 8t + j, d[j][1] is column 8t + 4 + j.
    __device__ __forceinline__ void read(Tf32B (&b)[OPERANDS], const unsigned char* rows, int group) const
    {
        const auto low = *reinterpret_cast<const Vector<float, 4>*>(rows + Tile::advance(even, 8 * group));
        const auto high = *reinterpret_cast<const Vector<float, 4>*>(rows + Tile::advance(odd, 8 * group));
#pragma unroll
        for (int j = 0; j < OPERANDS; ++j) {
            b[j].set(0, low.at[j]);
            b[j].set(1, high.at[j]);
        }
    }
};
