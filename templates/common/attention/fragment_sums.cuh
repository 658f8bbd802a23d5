// dQ on its way: sums of fragments in device memory, to which blocks of keys add.
#pragma once

#include "common/ptx/vector_add.cuh"

/// Sums of fragments in device memory, 128 floats for each 16x8 piece of a matrix, in an order in which a warp adds to
/// neighbouring addresses: by vectors of 4 where the device adds those, else by floats.
struct FragmentSums {
    /// Adds a warp's fragment to a piece, which other blocks add to as well: their order is left to chance.
    static __device__ __forceinline__ void add(float* piece, const float (&x)[4])
    {
        const int lane = threadIdx.x % 32;
        if constexpr (ADDS_VECTORS) {
            add_vector(reinterpret_cast<float*>(reinterpret_cast<float4*>(piece) + lane), x);
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) atomicAdd(piece + e * 32 + lane, x[e]);
        }
    }

    /// The fragment that a lane's additions to a piece have made.
    static __device__ __forceinline__ void read(float (&x)[4], const float* piece)
    {
        const int lane = threadIdx.x % 32;
        if constexpr (ADDS_VECTORS) {
            const float4 all = reinterpret_cast<const float4*>(piece)[lane];
            x[0] = all.x;
            x[1] = all.y;
            x[2] = all.z;
            x[3] = all.w;
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) x[e] = piece[e * 32 + lane];
        }
    }
};
