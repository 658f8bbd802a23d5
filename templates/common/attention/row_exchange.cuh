// What warps tell one another that have the same rows of scores, each with some of the keys and some of the columns of O.
#pragma once

#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/warp/matrix_lanes.cuh"

/// Of the SHARERS neighbouring warps that have the same rows, this one's number.
template <int SHARERS>
__device__ __forceinline__ int sharer()
{
    return threadIdx.x / 32 % SHARERS;
}

/// Warps that have the same rows wait for one another.
template <int SHARERS>
__device__ __forceinline__ void meet_sharers()
{
    if constexpr (SHARERS == 1)
        __syncwarp();
    else
        named_barrier<32 * SHARERS>(1 + threadIdx.x / 32 / SHARERS);
}

/// A number a row, and the weights of their keys, in shared memory, for warps with M tiles of 16 rows each, of BLOCK_M rows a
/// block. Weights: a SharedTile of all of a step's keys, of which sharers take 16 by turns.
template <class Weights, int SHARERS, int M, int BLOCK_M>
struct RowExchange {
    float* numbers;         // of this thread's first row, [SHARERS][BLOCK_M]
    SharedAddress weights;  // this lane's row, for stmatrix and ldmatrix

    __device__ __forceinline__ void put(const float (&x)[2 * M]) const
    {
        if (threadIdx.x % 4 != 0) return;
#pragma unroll
        for (int r = 0; r < 2 * M; ++r) numbers[sharer<SHARERS>() * BLOCK_M + 8 * r] = x[r];
    }

    /// The numbers of all sharers, combined.
    template <class Op>
    __device__ __forceinline__ void get(float (&x)[2 * M]) const
    {
#pragma unroll
        for (int r = 0; r < 2 * M; ++r) {
            x[r] = numbers[8 * r];
#pragma unroll
            for (int other = 1; other < SHARERS; ++other) x[r] = Op::combine(x[r], numbers[other * BLOCK_M + 8 * r]);
        }
    }

    /// Weights of this warp's keys from `key` on, of 16.
    __device__ __forceinline__ void put(const uint32_t (&p)[M][4], int key) const
    {
        const SharedAddress to = Weights::advance(weights, 2 * sharer<SHARERS>());
#pragma unroll
        for (int m = 0; m < M; ++m)
            stmatrix(Weights::advance(to, key / 8 * SHARERS) + Weights::bytes(16 * m), p[m]);
    }

    /// Weights of the step's keys from `key` on, of 16.
    __device__ __forceinline__ void get(uint32_t (&p)[M][4], int key) const
    {
#pragma unroll
        for (int m = 0; m < M; ++m) ldmatrix(p[m], Weights::advance(weights, key / 8) + Weights::bytes(16 * m));
    }
};
