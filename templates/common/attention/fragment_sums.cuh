// dQ on its way: sums of fragments in device memory, to which blocks of keys add.
#pragma once

/// Sums of fragments in device memory, 128 floats for each 16x8 piece of a matrix, in an order in which a warp adds to
/// neighbouring addresses: by vectors of 4 where the device adds those (sm_90 and later), else by floats.
struct FragmentSums {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    static constexpr bool VECTORS = true;
#else
    static constexpr bool VECTORS = false;
#endif

    /// Adds a warp's fragment to a piece, which other blocks add to as well: their order is left to chance.
    static __device__ __forceinline__ void add(float* piece, const float (&x)[4])
    {
        const int lane = threadIdx.x % 32;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        atomicAdd(reinterpret_cast<float4*>(piece) + lane, make_float4(x[0], x[1], x[2], x[3]));
#else
#pragma unroll
        for (int e = 0; e < 4; ++e) atomicAdd(piece + e * 32 + lane, x[e]);
#endif
    }

    /// The fragment that a lane's additions to a piece have made.
    static __device__ __forceinline__ void read(float (&x)[4], const float* piece)
    {
        const int lane = threadIdx.x % 32;
        if constexpr (VECTORS) {
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
