// The end of dK's and dV's sums in device memory, to which blocks have added that share the same keys.
#pragma once

#include "common/tile/rows.cuh"
#include "common/tile/rows_anywhere.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

/// Scales and rounds sixteen rows of a gradient, from row `first` on, for a warp; whether all of them are finite. `Sums`:
/// AccumulatorSums of whole rows of COLS columns; `sums`: of the 64 rows that those are of; the gradient's matrices have
/// `rows` rows of HS.
template <class Sums, int COLS, int HS, class T>
__device__ __forceinline__ bool round_key_sums(const float* sums, float scale, const View<T, 4>& gradient, int rows,
                                               const RowPlace& first)
{
    const RowPlace upper = {first.b, first.h, first.t + static_cast<int>(threadIdx.x) % 32 / 4};
    const RowPlace lower = {first.b, first.h, upper.t + 8};
    // Columns that are asked for before any is looked at: memory is what this waits for.
    constexpr int AT_ONCE = COLS > 64 ? 128 : COLS > 32 ? 64 : 32;
    float zero = 0.0f;  // 0 times all
#pragma unroll 1
    for (int begin = 0; begin < HS; begin += AT_ONCE) {
        float4 x[AT_ONCE / 8] = {};
#pragma unroll
        for (int i = 0; i < AT_ONCE / 8; ++i)
            if (begin + 8 * i < COLS) x[i] = Sums::read(sums, first.t % 64, begin + 8 * i);
#pragma unroll
        for (int part = 0; part < AT_ONCE / 32; ++part) {
            uint32_t pairs[2][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 own = x[4 * part + i];
                pairs[0][i] = pack<T>(own.x * scale, own.y * scale);
                pairs[1][i] = pack<T>(own.z * scale, own.w * scale);
                zero = fmaf(own.x, 0.0f, fmaf(own.y, 0.0f, fmaf(own.z, 0.0f, fmaf(own.w, 0.0f, zero))));
            }
            const int col = begin + 32 * part;
            write_pairs<HS>(pairs[0], row_of(gradient, upper), gradient.stride[3], col, upper.t < rows);
            write_pairs<HS>(pairs[1], row_of(gradient, lower), gradient.stride[3], col, lower.t < rows);
        }
    }
    return __all_sync(ALL_LANES, zero == 0.0f);
}
