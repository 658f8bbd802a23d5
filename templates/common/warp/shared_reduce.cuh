// A reduction over a block through shared memory alone, halving the threads that take part at every step.
#pragma once

/// Combines x over a block of THREADS threads (a power of two); all of them get the result. `scratch` holds THREADS
/// floats; it may be used again right after the call.
template <class Op, int THREADS>
__device__ __forceinline__ float reduce_tree(float x, float* scratch)
{
    scratch[threadIdx.x] = x;
    __syncthreads();
#pragma unroll
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] = Op::combine(scratch[threadIdx.x], scratch[threadIdx.x + half]);
        __syncthreads();
    }
    x = scratch[0];
    __syncthreads();
    return x;
}
