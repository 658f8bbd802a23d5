// P and dS on their way through shared memory, from the warps that compute them to those that multiply with them.
//
// A tile of pairs is transposed, keys by queries: a SharedTile whose rows are the block's keys.
#pragma once

#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/products.cuh"

/// Where a warp writes P and dS of its keys: the lane's place in a tile of pairs.
template <class PairTile, bool STMATRIX>
struct PairWriter {
    int place;

    __device__ __forceinline__ PairWriter(int warp_row, int lane)
        : place((STMATRIX ? ldmatrix_rows_first<PairTile>() : opaque(PairTile::offset(lane / 4, 0) + lane % 4 * 4)) +
                PairTile::bytes(warp_row))
    {
    }

    /// 16 queries from `column` of the tile on, of 16 * M keys; `a` is an operand of products (see `as_operand`).
    template <int M>
    __device__ __forceinline__ void write(unsigned char* tile, const uint32_t (&a)[M][4], int column) const
    {
#pragma unroll
        for (int m = 0; m < M; ++m) {
            if constexpr (STMATRIX) {
                stmatrix(shared_address(tile) + PairTile::advance(place, column / 8) + PairTile::bytes(16 * m), a[m]);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    *reinterpret_cast<uint32_t*>(tile + PairTile::advance(place, column / 8 + i / 2) +
                                                 PairTile::bytes(16 * m + i % 2 * 8)) = a[m][i];
            }
        }
    }
};

/// Reads 16 queries from `column` of the tile on, of 16 * M keys, as they were written. `own`: the lane's row of the first
/// of these keys, for ldmatrix with rows first.
template <class PairTile, int M>
__device__ __forceinline__ void read_pairs(uint32_t (&a)[M][4], SharedAddress own, int column)
{
#pragma unroll
    for (int m = 0; m < M; ++m) ldmatrix(a[m], PairTile::advance(own, column / 8) + PairTile::bytes(16 * m));
}

/// gradients += P or dS times all rows of a tile, for a warp's part of the keys, from `row` on, and of the columns that
/// SHARERS warps share out. `pairs_lane`, `tile_lane`: the lane's rows of the two tiles, for ldmatrix with rows first.
template <class T, class Tile, class PairTile, int SHARERS, int M, int N>
__device__ __forceinline__ void multiply_pairs(float (&gradients)[M][N][4], const unsigned char* pairs, SharedAddress tile,
                                               int row, int pairs_lane, int tile_lane)
{
    const SharedAddress own = shared_address(pairs) + PairTile::bytes(row) + pairs_lane;
#pragma unroll
    for (int first = 0; first < PairTile::COLS; first += 16) {
        uint32_t a[M][4];
        read_pairs<PairTile>(a, own, first);
        multiply_over_rows<T, Tile, SHARERS>(gradients, a, tile + Tile::bytes(first) + tile_lane);
    }
}
