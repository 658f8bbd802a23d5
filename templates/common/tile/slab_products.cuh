// Products by wgmma of tiles of slabs.
#pragma once

#include "common/ptx/wgmma.cuh"
#include "common/tile/slab_tile.cuh"

/// Of a tile.
template <class Tile>
constexpr int COLUMNS = 0;
template <int ROWS, int COLS, int SLAB>
constexpr int COLUMNS<SlabTile<ROWS, COLS, SLAB>> = COLS;

/// x = A B^T over the tiles' columns: 64 rows of A, an operand of a tile of slabs like B, by all rows of B. One group of
/// wgmmas.
template <class T, class A, class B>
__device__ __forceinline__ void multiply_over_columns(float (&x)[B::ROWS / 2], uint64_t a, SharedAddress b_tile)
{
    static_assert(COLUMNS<A> == COLUMNS<B>, "rows of the same length");
    const uint64_t b = B::rows_by_k(b_tile);
#pragma unroll
    for (int step = 0; step < COLUMNS<B> / 16; ++step)
        wgmma<T, B::ROWS>(x, wgmma_advance(a, A::along_columns(step)), wgmma_advance(b, B::along_columns(step)), step > 0);
    wgmma_commit();
}

/// x += P B over the tile's rows: P, 64 rows, from registers. The caller ends the group.
template <class T, class B, int STEPS>
__device__ __forceinline__ void add_product_over_rows(float (&x)[COLUMNS<B> / 2], const uint32_t (&p)[STEPS][4],
                                                      SharedAddress b_tile)
{
    static_assert(16 * STEPS == B::ROWS, "a column of P for each row");
    const uint64_t b = B::k_by_columns(b_tile);
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
        wgmma<T, COLUMNS<B>, true>(x, p[step], wgmma_advance(b, B::along_rows(step)), 1);
}

/// x = A B over A's columns: 64 rows of a tile A by columns of a tile B from `b` on. One group of wgmmas.
template <class T, class A, class B, int REGISTERS>
__device__ __forceinline__ void multiply_over_rows(float (&x)[REGISTERS], SharedAddress a_rows, SharedAddress b_columns)
{
    static_assert(COLUMNS<A> == B::ROWS, "a row of B for each column of A");
    const uint64_t a = A::rows_by_k(a_rows), b = B::k_by_columns(b_columns);
#pragma unroll
    for (int step = 0; step < B::ROWS / 16; ++step)
        wgmma<T, 2 * REGISTERS, false, true>(x, wgmma_advance(a, A::along_columns(step)),
                                             wgmma_advance(b, B::along_rows(step)), step > 0);
    wgmma_commit();
}

/// x = P B over a tile's rows: P, 64 rows, from registers, by columns of B from `b` on. One group of wgmmas.
template <class T, class B, int STEPS, int REGISTERS>
__device__ __forceinline__ void multiply_registers_over_rows(float (&x)[REGISTERS], const uint32_t (&p)[STEPS][4],
                                                             SharedAddress b_columns)
{
    static_assert(16 * STEPS == B::ROWS, "a column of P for each row");
    const uint64_t b = B::k_by_columns(b_columns);
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
        wgmma<T, 2 * REGISTERS, true>(x, p[step], wgmma_advance(b, B::along_rows(step)), step > 0);
    wgmma_commit();
}

/// x += A^T B over the rows of both tiles: 64 columns of A from `a` on by columns of B from `b` on. The caller ends the
/// group.
template <class T, class A, class B, int REGISTERS>
__device__ __forceinline__ void add_product_of_columns(float (&x)[REGISTERS], SharedAddress a_columns,
                                                       SharedAddress b_columns)
{
    static_assert(A::ROWS == B::ROWS, "a row of B for each row of A");
    const uint64_t a = A::k_by_columns(a_columns), b = B::k_by_columns(b_columns);
#pragma unroll
    for (int step = 0; step < B::ROWS / 16; ++step)
        wgmma<T, 2 * REGISTERS, true, true>(x, wgmma_advance(a, A::along_rows(step)),
                                            wgmma_advance(b, B::along_rows(step)), 1);
}
