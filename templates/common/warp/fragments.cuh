// What becomes of a product's fragments once it is finished: rounded, placed in a tile, exchanged between lanes.
#pragma once

#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/warp/products.cuh"

/// Rounds factor * x and places it in a tile, from row `row` and piece `first` on; see `nth_piece`.
template <class T, class Tile, int SHARERS, int M, int N>
__device__ __forceinline__ void place_rows(unsigned char* tile, int row, const float (&x)[M][N][4], float factor,
                                           int first)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const uint32_t both = pack<T>(x[m][n][2 * half] * factor, x[m][n][2 * half + 1] * factor);
                const int at = Tile::offset(row + 16 * m + 8 * half + lane / 4, first + nth_piece<SHARERS>(n));
                *reinterpret_cast<uint32_t*>(tile + at + lane % 4 * 4) = both;
            }
}

/// The same from the tile's first row on, with a factor a row of the lane, for sharer number `part`.
template <class T, class Tile, int SHARERS, int M, int N>
__device__ __forceinline__ void place_scaled_rows(unsigned char* tile, const float (&x)[M][N][4],
                                                  const float (&factor)[2 * M], int part)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2 * M; ++r)
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const float(&pair)[4] = x[r / 2][n];
            const uint32_t both = pack<T>(pair[r % 2 * 2] * factor[r], pair[r % 2 * 2 + 1] * factor[r]);
            const int chunk = 2 * part + nth_piece<SHARERS>(n);
            *reinterpret_cast<uint32_t*>(tile + Tile::offset(8 * r + lane / 4, chunk) + lane % 4 * 4) = both;
        }
}

/// Four lanes exchange four words each: lane q of them gets word q of lane j as word j.
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4])
{
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool odd = threadIdx.x & bit;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & bit) continue;
            const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? x[i] : x[i + bit], bit);
            (odd ? x[i] : x[i + bit]) = got;
        }
    }
}
