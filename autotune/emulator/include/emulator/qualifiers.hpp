// What CUDA's keywords mean to a host compiler. Included after the CUDA headers, which define some of them themselves.
#pragma once

#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __cluster_dims__
#undef __maxnreg__
#undef __forceinline__
#undef __noinline__
#undef __constant__
#undef __device__
#undef __host__
#undef __global__
#undef __managed__

// A block runs on one OS thread and an OS thread runs one block at a time, so a thread-local variable is a block's own.
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __constant__
#define __device__
#define __host__
#define __global__
#define __managed__

#define threadIdx (::emulator::self().index)
#define blockIdx (::emulator::self().block->index)
#define blockDim (::emulator::self().block->dim)
#define gridDim (::emulator::self().block->grid)

constexpr int warpSize = 32;
