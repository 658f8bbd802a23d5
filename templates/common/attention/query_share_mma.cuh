// dQ of 16-bit operands on tensor cores, from dS that warps pass on in shared memory.
#pragma once

#include "common/attention/fragment_sums.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/products.cuh"

/// A warp's share of dQ = dS K of a tile of queries, over all KEYS keys of the block. WARPS_M by WARPS_D warps share it
/// out, tiles of 16 queries by 16 columns, and compute their columns in PARTS, one after the other; 0: none of it.
template <class T, class Tile, class PairTile, int KEYS, int WARPS_M, int WARPS_D, int PARTS>
struct QueryShare {
    static constexpr int M_TILES = PairTile::COLS / WARPS_M / 16;  // of 16 queries a warp
    static constexpr int D_TILES = Tile::COLS / WARPS_D / 8;       // of 8 columns a warp

    int row;   // its first query in the tile
    int part;  // of the columns
    int columns_lane;
    int ds_column;

    /// `rows_first`: the lane's row of a Tile, for ldmatrix with rows first.
    __device__ __forceinline__ QueryShare(int warp, int rows_first)
        : row(warp / WARPS_D * 16 * M_TILES), part(warp % WARPS_D),
          columns_lane(PARTS == 0 ? 0 : opaque(Tile::advance(rows_first, 2 * part))),
          ds_column(PARTS == 0 ? 0 : PairTile::advance(ldmatrix_cols_first<PairTile>(), row / 8))
    {
    }

    /// Where its sums are, of the tile of queries from `query` on.
    template <class Operands>
    __device__ __forceinline__ float* sums(float* accumulator, const Operands& in, int batch, int head, int query) const
    {
        return accumulator + in.number(batch, head, query + row) * Tile::COLS + part * 256;
    }

    /// Adds dS K to them.
    __device__ __forceinline__ void add(float* sums, const unsigned char* ds, const unsigned char* k_tile) const
    {
#pragma unroll 1
        for (int from = 0; from < D_TILES; from += D_TILES / PARTS) {
            float dq[M_TILES][D_TILES / PARTS][4] = {};
#pragma unroll
            for (int own = 0; own < KEYS; own += 16) {
                uint32_t a[M_TILES][4];
#pragma unroll
                for (int m = 0; m < M_TILES; ++m)
                    ldmatrix_transposed(
                        a[m], shared_address(ds) + PairTile::advance(ds_column, 2 * m) + PairTile::bytes(own));
                multiply_over_rows<T, Tile, WARPS_D>(dq, a, shared_address(k_tile) + Tile::bytes(own) + columns_lane, from);
            }
#pragma unroll
            for (int m = 0; m < M_TILES; ++m)
#pragma unroll
                for (int n = 0; n < D_TILES / PARTS; ++n) {
                    const int piece = nth_piece<WARPS_D>(from + n);
                    if (Tile::USED_COLS < Tile::COLS && (2 * part + piece) * 8 >= Tile::USED_COLS) continue;
                    FragmentSums::add(sums + m * 16 * Tile::COLS + piece * 128, dq[m][n]);
                }
        }
    }
};
