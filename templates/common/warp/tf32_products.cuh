// What the attention gradients in fp32 on tensor cores share ("3xTF32", see mma_tf32.cuh): warps that own rows of one
// side of the scores and meet tiles of the other, and the product that crosses from one side to the other.
//
// Which operand is A matters, since mma wants the registers of an operand side by side and shared memory has no
// transposed matrix loads for 32-bit elements. Where depth runs along the rows of both tiles (K Q^T), ldmatrix leaves
// either of them right. Where it runs down the rows of one (P^T dO), the transposed product is taken, dO^T P: two
// neighbouring columns of two rows, read as two vectors, are an A operand, and a product's pairs of columns are B
// operands where they lie. Neither takes a move.
//
// Lane l has g = l / 4 and t = l % 4, as in the fragments of mma.
#pragma once

#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/opaque.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/tf32_operands.cuh"

// With one of the factors rounded, errors of a product have no preferred sign. P and dS are: they are split once.
using SplitA = Tf32Split<4, false>;   // an A operand, 16 rows, 8 deep
using SplitB = Tf32Split<2, false>;   // a B operand, 8 deep, 8 columns
using RoundedB = Tf32Split<2, true>;

/// d[m][n] + rest[m][n] += a[m] b[n] by three products, the small ones to `rest`, so that `d` is truncated less often;
/// the two may be one. Tiles take turns, so that a sum does not wait for the one before it.
template <int M, int N, bool ROUNDED>
__device__ __forceinline__ void multiply_split(float (&d)[M][N][4], float (&rest)[M][N][4], const SplitA (&a)[M],
                                               const Tf32Split<2, ROUNDED> (&b)[N])
{
#pragma unroll
    for (int product = 0; product < 3; ++product)
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
            for (int n = 0; n < N; ++n)
                mma_16x8x8_tf32(product == 2 ? d[m][n] : rest[m][n], product == 0 ? a[m].small : a[m].big,
                                product == 1 ? b[n].small : b[n].big);
}

/// to += from.
template <int M, int N>
__device__ __forceinline__ void add_tiles(float (&to)[M][N][4], const float (&from)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) to[m][n][e] += from[m][n][e];
}

/// acc = 16 * M own rows times 8 * N rows of another tile, over the head: S = K Q^T, dP = V dO^T. `own_lane` and `lane`
/// are where the lane reads them for ldmatrix, rows first and columns first, counted from the tiles' own addresses.
/// UNROLL of the steps of 8 columns are written out, a multiple of 4.
template <class Tile, int UNROLL, int M, int N>
__device__ __forceinline__ void multiply_head_tf32(float (&acc)[M][N][4], SharedAddress own_tile, int own_lane,
                                                   SharedAddress tile, int lane)
{
    float rest[M][N][4] = {};
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[m][n][e] = 0.0f;
#pragma unroll UNROLL / 4
    for (int group = 0; group < Tile::CHUNKS; group += 8)
#pragma unroll
        for (int chunk = group; chunk < group + 8; chunk += 2) {
            if (Tile::USED_CHUNKS < Tile::CHUNKS && chunk >= Tile::USED_CHUNKS) break;
            SplitA a[M];
#pragma unroll
            for (int m = 0; m < M; ++m) {
                uint32_t bits[4];
                ldmatrix(bits, Tile::advance(own_lane, chunk) + own_tile + Tile::bytes(16 * m));
                a[m].set(bits);
            }
            SplitB b[N];
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                uint32_t bits[4];
                ldmatrix(bits, Tile::advance(lane, chunk) + tile + Tile::bytes(8 * n));
#pragma unroll
                for (int i = 0; i < 4; ++i) b[n + i / 2].set(i % 2, __uint_as_float(bits[i]));
            }
            multiply_split(acc, rest, a, b);
        }
    add_tiles(acc, rest);
}

/// A pair of neighbouring columns in each of two rows of a tile, which for a warp is 16 columns of 8 rows: an A operand
/// whose row g is column 2 * g and whose row g + 8 is column 2 * g + 1, 8 deep. Depth t is the first of the lane's two
/// rows, depth t + 4 the second.
template <class Tile>
struct ColumnPairs {
    int first;
    int second;

    /// Rows 2 * t and 2 * t + 1 of 8: the order in which the columns of a product are the depth of the next one.
    static __device__ __forceinline__ ColumnPairs in_order()
    {
        return {opaque(row_of(threadIdx.x, 0)), opaque(row_of(threadIdx.x, 1))};
    }

    /// Where columns 2 * g and 2 * g + 1 of row 2 * t + next lie.
    static __device__ __forceinline__ int row_of(unsigned thread, int next)
    {
        return Tile::offset(thread % 4 * 2 + next, thread % 32 / 8) + thread / 4 % 2 * 8;
    }

    /// The operand of columns 16 * i to 16 * i + 15; `rows` is where the lanes' rows are counted from.
    __device__ __forceinline__ void read(SplitA& a, const unsigned char* rows, int i) const
    {
        float x[2];
        load<2>(reinterpret_cast<const float*>(rows + Tile::advance(first, 4 * i)), x);
        a.set(0, x[0]);
        a.set(1, x[1]);
        load<2>(reinterpret_cast<const float*>(rows + Tile::advance(second, 4 * i)), x);
        a.set(2, x[0]);
        a.set(3, x[1]);
    }
};

/// Gradients of a warp's 16 * M own rows, transposed: in piece [i][r], elements 0 and 1 are column 16 * i + 2 * g of
/// the head, 2 and 3 the next one; even elements are row 8 * r + 2 * t, odd ones the next one.
template <int HS, int M>
using TransposedGradients = float[HS / 16][2 * M][4];

/// gradients += pairs times 8 * K rows of a tile: dV += P^T dO, dK += dS^T Q, dQ += dS K. Sums over these rows are
/// taken on their own and then added in fp32, which rounds where tensor cores truncate.
template <class Tile, int K, int M, int D>
__device__ __forceinline__ void multiply_rows_tf32(float (&gradients)[D][2 * M][4], const float (&pairs)[M][K][4],
                                                   const unsigned char* rows, const ColumnPairs<Tile>& lane)
{
    constexpr int GROUP = M == 1 ? 2 : 1;  // tiles of 16 columns at a time: four sums that do not wait for one another
    RoundedB b[K][2 * M];
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
        for (int r = 0; r < 2 * M; ++r)
#pragma unroll
            for (int i = 0; i < 2; ++i) b[k][r].set(i, pairs[r / 2][k][r % 2 * 2 + i]);
#pragma unroll
    for (int d = 0; d < D; d += GROUP) {
        float sum[GROUP][2 * M][4] = {};
#pragma unroll
        for (int k = 0; k < K; ++k) {
            SplitA a[GROUP];
#pragma unroll
            for (int i = 0; i < GROUP; ++i) lane.read(a[i], rows + Tile::bytes(8 * k), d + i);
            multiply_split(sum, sum, a, b[k]);
        }
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
#pragma unroll
            for (int r = 0; r < 2 * M; ++r)
#pragma unroll
                for (int e = 0; e < 4; ++e) gradients[d + i][r][e] += sum[i][r][e];
    }
}

/// Writes factor * x, a warp's gradients, as the first `rows` rows of a matrix of HS columns. Returns whether what this
/// thread wrote is finite: 0 times it is 0.
template <int HS, int D, int R>
__device__ __forceinline__ bool write_transposed_rows(float* to, const View<float, 4>& tensor, int rows,
                                               const float (&x)[D][R][4], float factor)
{
    const int lane = threadIdx.x % 32;
    const bool vectors = allows_vectors<2>(tensor);
    float zero = 0.0f;
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
            const int row = 8 * r + lane % 4 * 2 + odd;
            if (row >= rows) continue;
#pragma unroll
            for (int d = 0; d < D; ++d) {
                const int col = 16 * d + lane / 4 * 2;
                if (HS < 16 * D && col >= HS) continue;
                const float part[2] = {x[d][r][odd] * factor, x[d][r][2 + odd] * factor};
                store_part<HS % 2 == 0 ? HS : 16 * D, HS>(to + row * tensor.stride[2], tensor.stride[3], col, part, vectors);
                zero = fmaf(0.0f, part[0], fmaf(0.0f, part[1], zero));
            }
        }
    return zero == 0.0f;
}
