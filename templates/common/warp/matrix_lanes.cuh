// Which row of a tile in shared memory a lane names for ldmatrix and stmatrix.
#pragma once

#include "common/ptx/opaque.cuh"
#include "common/tile/shared_tile.cuh"

/// Where the row that a lane gives to ldmatrix lies in a tile, for its 16x16 piece at (0, 0): add `Tile::bytes` of a
/// multiple of 8 rows, and `Tile::advance` by 2 chunks for each 16 columns. mma takes B from neighbouring registers,
/// hence two orders of the four matrices.
///
/// Rows first: (rows 0-7, cols 0-7), (rows 8-15, cols 0-7), (rows 0-7, cols 8-15), (rows 8-15, cols 8-15). An A operand;
/// or, transposed, two B operands, 16 deep, of the tile's columns 0-7 and 8-15.
template <class Tile>
__device__ __forceinline__ int ldmatrix_rows_first()
{
    return opaque(Tile::offset(threadIdx.x % 16, threadIdx.x % 32 / 16));
}

/// Columns first: (rows 0-7, cols 0-7), (rows 0-7, cols 8-15), (rows 8-15, cols 0-7), (rows 8-15, cols 8-15). Two B
/// operands, 16 deep, whose columns are the tile's rows 0-7 and 8-15.
template <class Tile>
__device__ __forceinline__ int ldmatrix_cols_first()
{
    return opaque(Tile::offset(threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2));
}
