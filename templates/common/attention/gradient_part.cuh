// A warp group's part of dV or dK of a block's keys, whose P and dS all groups have written to shared memory: P^T dO and
// dS^T Q with keys as rows, or dO^T P and Q^T dS, transposed, with columns of the head as rows.
#pragma once

#include "common/attention/marked_gradients.cuh"
#include "common/tile/slab_copy.cuh"
#include "common/tile/slab_products.cuh"
#include "common/tile/slab_tile.cuh"

/// BLOCKS times 64 rows by WIDTH columns of the gradient, or, HEAD, of it transposed. `Pairs`: tiles of P or dS, queries by
/// keys; `Factor`: of dO or Q, queries by columns of the head.
template <class T, class Pairs, class Factor, bool HEAD, int BLOCKS, int WIDTH>
struct GradientPart {
    using Sums = float[BLOCKS][WIDTH / 2];
    using A = std::conditional_t<HEAD, Factor, Pairs>;
    using B = std::conditional_t<HEAD, Pairs, Factor>;
    static_assert(A::SLAB == 64, "64 columns of an operand A lie in one slab");
    static_assert(B::SLAB % WIDTH == 0 || WIDTH % B::SLAB == 0 || B::SLABS * B::SLAB - WIDTH < B::SLAB,
                  "columns of an operand B lie in one slab, or in whole ones");

    int row;  // the first
    int col;

    static __device__ __forceinline__ void clear(Sums& x)
    {
#pragma unroll
        for (int i = 0; i < BLOCKS * WIDTH / 2; ++i) x[i / (WIDTH / 2)][i % (WIDTH / 2)] = 0.0f;
    }

    /// Adds a tile of queries. The caller ends the group of wgmmas.
    __device__ __forceinline__ void add(Sums& x, SharedAddress pairs, SharedAddress factor) const
    {
        const SharedAddress a = HEAD ? factor : pairs, b = HEAD ? pairs : factor;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
            add_product_of_columns<T, A, B>(x[block], a + A::from_column(row) + block * A::SLAB_BYTES,
                                            b + B::from_column(col));
    }

    /// Marks what is not finite, and writes all, scaled and rounded, to the gradient's tile, keys by columns of the head.
    template <class Tile>
    __device__ __forceinline__ void place(Sums& x, float factor, SharedAddress tile) const
    {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            if constexpr (HEAD) {
                mark_columns_not_finite(x[block]);
                place_transposed<Tile, T>(tile, col, row + 64 * block, x[block], factor);
            } else {
                mark_not_finite(x[block]);
                place_accumulators<Tile, T>(tile, row + 64 * block, x[block], factor, col);
            }
        }
    }
};
