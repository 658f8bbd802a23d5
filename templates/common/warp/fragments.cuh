// What becomes of a product's fragments once it is finished: rounded, placed in a tile, exchanged between lanes.
#pragma once

#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/warp/products.cuh"

/// Rounds factor * x and places it in a tile, from row `row` and piece `first` on; see `nth_piece`. Returns whether this
/// thread's rows are finite: their product with 0 is 0.
template <class T, class Tile, int SHARERS, int M, int N>
__device__ __forceinline__ bool place_rows(unsigned char* tile, int row, const float (&x)[M][N][4], float factor,
                                           int first)
{
    const int lane = threadIdx.x % 32;
    bool finite = true;
#pragma unroll
    for (int m = 0; m < M; ++m) {
        float zeros[4] = {};
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float(&four)[4] = x[m][n + i / 2];
                pairs[i] = pack<T>(four[i % 2 * 2] * factor, four[i % 2 * 2 + 1] * factor);
                const int piece = first + nth_piece<SHARERS>(n + i / 2);
                const int at = Tile::offset(row + 16 * m + i % 2 * 8 + lane / 4, piece);
                *reinterpret_cast<uint32_t*>(tile + at + lane % 4 * 4) = pairs[i];
            }
            mma_16x8x16<T>(zeros, pairs, 0, 0);
        }
        finite = finite && zeros[0] == 0.0f && zeros[2] == 0.0f;
    }
    return finite;
}

/// The same from the tile's first row on, with a factor a row of the lane, for sharer number `part`.
template <class T, class Tile, int SHARERS, int M, int N>
__device__ __forceinline__ bool place_scaled_rows(unsigned char* tile, const float (&x)[M][N][4],
                                                  const float (&factor)[2 * M], int part)
{
    const int lane = threadIdx.x % 32;
    bool finite = true;
#pragma unroll
    for (int m = 0; m < M; ++m) {
        float zeros[4] = {};
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int r = 2 * m + i % 2;
                const float(&four)[4] = x[m][n + i / 2];
                pairs[i] = pack<T>(four[i % 2 * 2] * factor[r], four[i % 2 * 2 + 1] * factor[r]);
                const int chunk = 2 * part + nth_piece<SHARERS>(n + i / 2);
                *reinterpret_cast<uint32_t*>(tile + Tile::offset(8 * r + lane / 4, chunk) + lane % 4 * 4) = pairs[i];
            }
            mma_16x8x16<T>(zeros, pairs, 0, 0);
        }
        finite = finite && zeros[0] == 0.0f && zeros[2] == 0.0f;
    }
    return finite;
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
