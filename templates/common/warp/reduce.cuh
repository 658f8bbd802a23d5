// Reductions over lanes of a warp and over the warps of a block.
#pragma once

constexpr unsigned ALL_LANES = 0xffffffffu;

struct Sum {
    static __device__ __forceinline__ float identity() { return 0.0f; }
    static __device__ __forceinline__ float combine(float a, float b) { return a + b; }
};

struct Max {
    static __device__ __forceinline__ float identity() { return __int_as_float(0xff800000); }  // -inf
    static __device__ __forceinline__ float combine(float a, float b) { return fmaxf(a, b); }
};

/// Combines x over the lanes that differ in lane bits LOW, 2 * LOW, ... below HIGH; all of them get the result.
template <class Op, int LOW, int HIGH>
__device__ __forceinline__ float reduce_lanes(float x)
{
#pragma unroll
    for (int bit = LOW; bit < HIGH; bit *= 2) x = Op::combine(x, __shfl_xor_sync(ALL_LANES, x, bit));
    return x;
}

/// Combines x over a warp.
template <class Op>
__device__ __forceinline__ float reduce_warp(float x)
{
    return reduce_lanes<Op, 1, 32>(x);
}

/// Combines x over a block of THREADS threads (a multiple of 32). `scratch` holds THREADS / 32 floats; it may be used
/// again right after the call.
template <class Op, int THREADS>
__device__ __forceinline__ float reduce_block(float x, float* scratch)
{
    constexpr int WARPS = THREADS / 32;
    x = reduce_warp<Op>(x);
    if constexpr (WARPS > 1) {
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
        __syncthreads();
        x = Op::identity();
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) x = Op::combine(x, scratch[warp]);
        __syncthreads();
    }
    return x;
}
