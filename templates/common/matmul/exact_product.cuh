// Elements of a product again, in fp64 and from the summands that they have: tiles multiply what a triangular operand leaves
// out by 0, and 0 * NaN is NaN.
#pragma once

#include "common/matmul/triangle.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// Computes those of a block's elements of C again that are not finite although their summands are. Called by all THREADS
/// threads when they have written them; only where an operand is triangular is there anything to do.
template <Triangle TRIANGLE, int THREADS, class T>
__device__ __forceinline__ void mend_product(const View<T, 4>& a, const View<T, 4>& b, const View<T, 4>& c, int batch,
                                             int head, int b_head, int row_begin, int rows, int col_begin, int cols,
                                             int M, int K, float alpha)
{
    if constexpr (TRIANGLE == Triangle::A_LOWER || TRIANGLE == Triangle::A_UPPER) {
        __syncthreads();  // C is written
#pragma unroll 1
        for (long long i = threadIdx.x; i < static_cast<long long>(rows) * cols; i += THREADS) {
            const int row = row_begin + static_cast<int>(i / cols);
            const int col = col_begin + static_cast<int>(i % cols);
            T& element = matrix_of(c, batch, head)[row * c.stride[2] + col * c.stride[3]];
            if (is_finite(to_float(element))) continue;
            const T* const from_a = matrix_of(a, batch, head) + row * a.stride[2];
            const T* const from_b = matrix_of(b, batch, b_head) + col * b.stride[3];
            const Summands range = Summands::of_rows<TRIANGLE>(row, row + 1, M, K, 1);
            double sum = 0.0;
#pragma unroll 1
            for (int k = range.begin; k < range.end; ++k)
                sum = fma(static_cast<double>(to_float(from_a[k * a.stride[3]])),
                          static_cast<double>(to_float(from_b[k * b.stride[2]])), sum);
            element = from_float<T>(static_cast<float>(alpha * sum));
        }
    }
}
