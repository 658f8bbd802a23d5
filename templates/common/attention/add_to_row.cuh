// Accumulation into a gradient that several blocks add to.
#pragma once

/// Adds N neighbouring floats (1, 2 or 4) to a row from column `col` on, where other blocks add as well: their order is
/// left to chance. `vectors`: the row is contiguous and aligned to N floats.
template <int N>
__device__ __forceinline__ void add_to_row(float* row, long long col_stride, int col, const float (&x)[N], bool vectors)
{
#if (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900) || (defined(EMULATOR_ARCH) && EMULATOR_ARCH >= 900)
    if constexpr (N == 4) {
        if (vectors) {
            atomicAdd(reinterpret_cast<float4*>(row + col), make_float4(x[0], x[1], x[2], x[3]));
            return;
        }
    } else if constexpr (N == 2) {
        if (vectors) {
            atomicAdd(reinterpret_cast<float2*>(row + col), make_float2(x[0], x[1]));
            return;
        }
    }
#endif
    (void)vectors;
#pragma unroll
    for (int e = 0; e < N; ++e) atomicAdd(row + (col + e) * col_stride, x[e]);
}
