// dQ in fp32 on tensor cores, from dS that warps pass on in shared memory.
#pragma once

#include "common/attention/add_to_row.cuh"
#include "common/ptx/opaque.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/tf32_products.cuh"

/// dS of a step in shared memory, on its way from warps that own its keys to warps that own queries of dQ. A row holds
/// keys r and r + 8 of 16, side by side for each query, which makes them B operands: depth t is one, t + 4 the other.
/// Chunks of 16 bytes, two queries, change places so that neither writes nor reads meet a bank conflict.
template <int QUERIES>
struct PairTile {
    static_assert(QUERIES % 16 == 0, "a row covers all banks");

    static __host__ __device__ constexpr int bytes(int keys) { return keys * 4 * QUERIES; }

    /// Byte offset of a chunk, in one of the first 8 rows.
    static __device__ __forceinline__ int offset(int row, int chunk)
    {
        return row * 8 * QUERIES + (chunk ^ (row % 2 * 4) ^ (row / 2 * 2)) * 16;
    }

    /// From the offset of a row's chunk to that of the chunk `by` further, as in SharedTile.
    static __device__ __forceinline__ int advance(int at, int by) { return (at ^ (by % 8 * 16)) + by / 8 * 128; }

    /// Where a lane writes the first 8 queries of a product of 16 keys by queries: its keys g and g + 8, queries 2 * t
    /// and 2 * t + 1.
    static __device__ __forceinline__ int place_of_lane()
    {
        return opaque(offset(threadIdx.x % 32 / 4, threadIdx.x % 4));
    }

    /// Writes 16 keys by 8 * N queries from query 8 * first on; `at`: the lane's place, counted from the keys' own.
    template <int N>
    static __device__ __forceinline__ void write(unsigned char* keys, int at, const float (&x)[N][4], int first)
    {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const float both[4] = {x[n][0], x[n][2], x[n][1], x[n][3]};
            store<4>(reinterpret_cast<float*>(keys + advance(at, 4 * (first + n))), both);
        }
    }
};

/// A warp's share of dQ = dS K for a step, transposed: D tiles of 16 columns, every STEP-th one, by N tiles of 8
/// queries, in pairs of tiles whose queries alternate.
template <class Tile, class Pairs, int D, int STEP, int N>
struct QueryShare {
    using Sums = float[D][N][4];
    static_assert(N % 2 == 0, "queries come in groups of 16");

    int k_rows[2];   // where the lane reads K: rows 2 * t and 2 * t + 1, whose partners are 8 further
    int ds_rows[2];  // and their dS

    /// A thread's part in the share from `query` of the step and column `col` on, multiples of 16; `col` is one of 32
    /// where D is not 1 and STEP is odd.
    __device__ __forceinline__ QueryShare(unsigned thread, int query, int col)
    {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            k_rows[j] = Tile::advance(ColumnPairs<Tile>::row_of(thread, j), col / 4);
            ds_rows[j] = Pairs::offset(thread % 4 * 2 + j, thread % 32 / 4) + 8 * query;
        }
    }

    /// sum + rest += dS K over 16 keys, given where their rows begin.
    __device__ __forceinline__ void multiply(Sums& sum, Sums& rest, const unsigned char* ds,
                                             const unsigned char* k) const
    {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const ColumnPairs<Tile> lane = {k_rows[j], k_rows[j] + Tile::bytes(8)};
            SplitA a[D];
#pragma unroll
            for (int d = 0; d < D; ++d) lane.read(a[d], k, STEP * d);
            SplitB b[N];
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                float x[4];
                load<4>(reinterpret_cast<const float*>(ds + Pairs::advance(ds_rows[j], 4 * n)), x);
#pragma unroll
                for (int i = 0; i < 4; ++i) b[n + i / 2].set(i % 2, x[i]);
            }
            multiply_split(sum, rest, a, b);
        }
    }

    /// Adds factor * sum to the first `rows` rows and `cols` columns of dQ from `to` on, where other blocks add too: their
    /// order is left to chance.
    static __device__ __forceinline__ void add(float* to, const View<float, 4>& dq, int rows, int cols, const Sums& sum,
                                               float factor)
    {
        if (allows_vectors<2>(dq))
            add_pairs<true>(to, dq, rows, cols, sum, factor);
        else
            add_pairs<false>(to, dq, rows, cols, sum, factor);
    }

    template <bool VECTORS>
    static __device__ __forceinline__ void add_pairs(float* to, const View<float, 4>& dq, int rows, int cols,
                                                     const Sums& sum, float factor)
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const int row = n / 2 * 16 + lane % 4 * 4 + odd * 2 + n % 2;
                if (row >= rows) continue;
#pragma unroll
                for (int d = 0; d < D; ++d) {
                    const int col = 16 * STEP * d + lane / 4 * 2;
                    if (Tile::USED_COLS < Tile::COLS && col >= cols) continue;
                    const float part[2] = {sum[d][n][odd] * factor, sum[d][n][2 + odd] * factor};
                    if (Tile::USED_COLS % 2 != 0 && col + 1 == cols)
                        atomicAdd(to + row * dq.stride[2] + col * dq.stride[3], part[0]);
                    else
                        add_to_row(to + row * dq.stride[2], dq.stride[3], col, part, VECTORS);
                }
            }
    }
};
