// Tensors as kernels see them: a pointer and one 64-bit element stride per axis, so that (B,T,NH,HS), (B,NH,T,HS),
// packed QKV, slices and broadcast (zero) strides all work without a copy.
#pragma once

#include <cstdint>

template <class T, int N>
struct View {
    T* data;
    long long stride[N];
};

/// Start of matrix (b, h) of a (B, NH, T, HS) tensor.
template <class T>
__device__ __forceinline__ T* matrix_of(const View<T, 4>& tensor, int b, int h)
{
    return tensor.data + b * tensor.stride[0] + h * tensor.stride[1];
}

/// Whether every row of the tensor can be read or written VEC elements at a time: the last axis is contiguous and
/// the base and all rows start at multiples of VEC elements. The same for all threads of a launch.
template <int VEC, class T, int N>
__device__ __forceinline__ bool allows_vectors(const View<T, N>& tensor)
{
    bool aligned = tensor.stride[N - 1] == 1 && reinterpret_cast<uintptr_t>(tensor.data) % (VEC * sizeof(T)) == 0;
#pragma unroll
    for (int axis = 0; axis < N - 1; ++axis) aligned = aligned && tensor.stride[axis] % VEC == 0;
    return aligned;
}
