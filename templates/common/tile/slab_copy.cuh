// Tiles of slabs by TMA: one box a slab; and results on their way from wgmma's accumulators to such a tile.
#pragma once

#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/types.cuh"

/// Starts to load a tile. `at`: where it begins in the tensor; the first coordinate counts for nothing.
template <class Tile, int RANK>
__device__ __forceinline__ void load_slabs(SharedAddress tile, const TensorMap& map, SharedAddress full, int (&&at)[RANK])
{
#pragma unroll
    for (int slab = 0; slab < Tile::SLABS; ++slab) {
        at[0] = slab * Tile::SLAB;
        tensor_load(tile + slab * Tile::SLAB_BYTES, map, full, at);
    }
}

/// Starts to store 64 rows of a tile from row `row` on, a multiple of 8. The map's box has 64 rows.
template <class Tile, int RANK>
__device__ __forceinline__ void store_slabs(const TensorMap& map, int (&&at)[RANK], SharedAddress tile, int row)
{
#pragma unroll
    for (int slab = 0; slab < Tile::SLABS; ++slab) {
        at[0] = slab * Tile::SLAB;
        tensor_store(map, at, tile + slab * Tile::SLAB_BYTES + row * Tile::LINE);
    }
}

/// Writes a warp group's accumulators, 64 rows by 2 * REGISTERS columns, times `factor` and rounded, to rows of a tile from
/// `row` on, and columns from `col` on.
template <class Tile, class T, int REGISTERS>
__device__ __forceinline__ void place_accumulators(SharedAddress tile, int row, const float (&x)[REGISTERS], float factor,
                                                   int col = 0)
{
    const int lane = threadIdx.x % 32;
    const int own = row + threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int c = 0; c < REGISTERS / 8; ++c) {
        uint32_t both[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) both[i] = pack<T>(x[8 * c + 2 * i] * factor, x[8 * c + 2 * i + 1] * factor);
        stmatrix(tile + Tile::offset(own, col + 16 * c + lane / 16 * 8), both);
    }
}

/// The same transposed: 64 columns of a tile from `col` on, of 2 * REGISTERS rows from `row` on.
template <class Tile, class T, int REGISTERS>
__device__ __forceinline__ void place_transposed(SharedAddress tile, int row, int col, const float (&x)[REGISTERS],
                                                 float factor)
{
    const int lane = threadIdx.x % 32;
    const int own_row = row + lane / 16 * 8 + lane % 8, own_col = col + threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8;
#pragma unroll
    for (int r = 0; r < REGISTERS / 8; ++r) {
        uint32_t both[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) both[i] = pack<T>(x[8 * r + 2 * i] * factor, x[8 * r + 2 * i + 1] * factor);
        stmatrix_transposed(tile + Tile::offset(own_row + 16 * r, own_col), both);
    }
}
