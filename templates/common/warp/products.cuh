// Products of 16-bit tiles on tensor cores (mma.sync), for warps that own rows of one side of the scores and meet tiles
// of the other.
#pragma once

#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/mma.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"

/// Warps that share out the columns (or rows) of a matrix take them by turns, 16 at a time: of its pieces of 8, the n-th
/// that a warp has, counted from its first.
template <int SHARERS>
__host__ __device__ constexpr int nth_piece(int n)
{
    return n / 2 * 2 * SHARERS + n % 2;
}

/// 16 * M rows of a tile that a warp multiplies again and again, as A operands.
template <class Tile, int M, bool IN_REGISTERS>
struct OwnRows {
    SharedAddress row;  // of this lane, for ldmatrix
    uint32_t kept[IN_REGISTERS ? Tile::USED_PAIRS : 1][M][4];

    __device__ __forceinline__ explicit OwnRows(SharedAddress lane_row) : row(lane_row) {}

    /// Reads them once and for all, if they are to stay in registers. The tile must have arrived.
    __device__ __forceinline__ void keep()
    {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int step = 0; step < Tile::USED_PAIRS; ++step) read(kept[step], step);
        }
    }

    /// Chunks 2 * step and 2 * step + 1: 16 columns, or 8 of floats.
    __device__ __forceinline__ void read(uint32_t (&to)[M][4], int step) const
    {
#pragma unroll
        for (int m = 0; m < M; ++m) ldmatrix(to[m], Tile::advance(row, 2 * step) + Tile::bytes(16 * m));
    }
};

/// acc = own rows times 8 * N rows of a tile, over the head: S = K Q^T, dP = V dO^T. `row`: the lane's in the tile, for
/// ldmatrix with columns first. Of the tile's pieces of 8 rows, those that one of SHARERS warps has.
template <class T, int SHARERS = 1, class Tile, int M, int N, bool IN_REGISTERS>
__device__ __forceinline__ void multiply_over_head(float (&acc)[M][N][4], const OwnRows<Tile, M, IN_REGISTERS>& own,
                                                   SharedAddress row)
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[m][n][e] = 0.0f;
#pragma unroll
    for (int step = 0; step < Tile::USED_PAIRS; ++step) {
        uint32_t fresh[M][4];
        if constexpr (!IN_REGISTERS) own.read(fresh, step);
        const auto& a = IN_REGISTERS ? own.kept[IN_REGISTERS ? step : 0] : fresh;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            ldmatrix(b, Tile::advance(row, 2 * step) + Tile::bytes(8 * nth_piece<SHARERS>(n)));
#pragma unroll
            for (int m = 0; m < M; ++m) {
                mma_16x8x16<T>(acc[m][n], a[m], b[0], b[1]);
                mma_16x8x16<T>(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/// acc += a times 16 rows of a tile: dV += P^T dO, dK += dS^T Q, dQ += dS K. Of the tile's columns, those that one of
/// SHARERS warps has, from its `from`-th piece on. `row`: the lane's in the first piece of the first of these rows, for
/// ldmatrix with rows first.
template <class T, class Tile, int SHARERS = 1, int M, int N>
__device__ __forceinline__ void multiply_over_rows(float (&acc)[M][N][4], const uint32_t (&a)[M][4], SharedAddress row,
                                                   int from = 0)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        ldmatrix_transposed(b, Tile::advance(row, nth_piece<SHARERS>(from + n)));
#pragma unroll
        for (int m = 0; m < M; ++m) {
            mma_16x8x16<T>(acc[m][n], a[m], b[0], b[1]);
            mma_16x8x16<T>(acc[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

/// Columns 8 * n to 8 * n + 15 of a product as an A operand of the next one.
template <class T, int M, int N>
__device__ __forceinline__ void as_operand(uint32_t (&a)[M][4], const float (&x)[M][N][4], int n)
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a[m][i] = pack<T>(x[m][n + i / 2][i % 2 * 2], x[m][n + i / 2][i % 2 * 2 + 1]);
}
