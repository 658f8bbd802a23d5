// dQ on its way from wgmma's accumulators: sums in device memory, to which blocks of keys add. They lie as the accumulators
// do, for each 8 columns of 64 rows four floats a thread, so that a warp adds to 512 neighbouring bytes, and one bulk
// addition takes a whole part (sm_90 and later).
#pragma once

#include "common/ptx/fences.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/shared_vectors.cuh"
#include "common/ptx/tensor_copy.cuh"

/// Of tiles of ROWS rows by COLS columns, each in parts of 64 rows by N columns: BY_ROWS of 64 rows after the other, else of
/// N columns after the other.
template <int ROWS, int COLS, int N, bool BY_ROWS>
struct AccumulatorSums {
    static_assert(BY_ROWS ? N == COLS && ROWS % 64 == 0 : ROWS == 64 && COLS % N == 0, "parts fill a tile");
    static constexpr int TILE = ROWS * COLS;  // floats
    static constexpr int PART = 64 * N;

    /// Adds a warp group's accumulators, thread by thread; in which order with those of other blocks is left to chance.
    static __device__ __forceinline__ void add(float* part, const float (&x)[N / 2])
    {
        float* const own = part + threadIdx.x % 128 * 4;
#pragma unroll
        for (int c = 0; c < N / 8; ++c)
            atomicAdd(reinterpret_cast<float4*>(own + 512 * c),
                      make_float4(x[4 * c], x[4 * c + 1], x[4 * c + 2], x[4 * c + 3]));
    }

    /// The same at once, by way of the group's `part_here` in shared memory. The group's barrier: number 1 + `group`.
    static __device__ __forceinline__ void add_at_once(float* part, const float (&x)[N / 2], SharedAddress part_here,
                                                       int group)
    {
        if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
        named_barrier<128>(1 + group);  // what was there has been added
        stage(part_here, x);
        fence_async_shared();
        named_barrier<128>(1 + group);
        if (threadIdx.x % 128 != 0) return;
        bulk_add(part, part_here, 4 * PART);
        bulk_commit();
    }

    /// Writes them to shared memory.
    static __device__ __forceinline__ void stage(SharedAddress part, const float (&x)[N / 2])
    {
        const SharedAddress own = part + threadIdx.x % 128 * 16;
#pragma unroll
        for (int c = 0; c < N / 8; ++c)
            store_shared(own + 2048 * c, x[4 * c], x[4 * c + 1], x[4 * c + 2], x[4 * c + 3]);
    }

    /// The lane's four of 16 rows by 8 columns of a tile, as a product's fragment: two of row lane / 4, two of 8 rows on.
    static __device__ __forceinline__ float4 read(const float* tile, int row, int col)
    {
        const float* const part = tile + (BY_ROWS ? row / 64 : col / N) * PART;
        return reinterpret_cast<const float4*>(part + col % N / 8 * 512 + row % 64 / 16 * 128)[threadIdx.x % 32];
    }
};

/// Clears COLS floats of the sums by LANES neighbouring threads, as many as a row has, whichever they are.
template <int COLS, int LANES>
__device__ __forceinline__ void clear_sums(float* sums)
{
    float4* const fours = reinterpret_cast<float4*>(sums);
#pragma unroll
    for (int c = threadIdx.x % LANES; c < COLS / 4; c += LANES) fours[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}
