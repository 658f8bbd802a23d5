// What kernels of batched matrix products share: which tile of which matrix a block computes, which summands a
// triangular operand leaves, and how results are written.
#pragma once

#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// Which triangle of a product matters. Diagonals end in the bottom-right corner.
enum class Triangle {
    NONE,
    C_LOWER,  // elements right of C's diagonal are 0
    A_LOWER,  // elements right of A's diagonal are 0
    A_UPPER,  // elements left of A's diagonal are 0
};

/// The summands that rows [row, row_end) of C need: k in [begin, end), empty where end <= begin.
struct Summands {
    int begin;
    int end;

    template <Triangle TRIANGLE>
    static __device__ __forceinline__ Summands of_rows(int row, int row_end, int M, int K, int step)
    {
        if constexpr (TRIANGLE == Triangle::A_LOWER) return {0, max(0, min(K, row_end + K - M))};
        if constexpr (TRIANGLE == Triangle::A_UPPER) return {max(0, row + K - M) / step * step, K};
        return {0, K};
    }
};

/// Whether element (row, col) of C is computed; the others are 0.
template <Triangle TRIANGLE>
__device__ __forceinline__ bool wanted(int row, int col, int M, int N)
{
    return TRIANGLE != Triangle::C_LOWER || col <= row + N - M;
}

/// Whether lines along AXIS can be read VEC elements at a time: it is contiguous, and the base and all lines start at
/// multiples of VEC elements. The same for all threads of a launch.
template <int AXIS, int VEC, class T, int N>
__device__ __forceinline__ bool allows_vectors_along(const View<T, N>& tensor)
{
    bool aligned = tensor.stride[AXIS] == 1 && reinterpret_cast<uintptr_t>(tensor.data) % (VEC * sizeof(T)) == 0;
#pragma unroll
    for (int axis = 0; axis < N; ++axis) aligned = aligned && (axis == AXIS || tensor.stride[axis] % VEC == 0);
    return aligned;
}
