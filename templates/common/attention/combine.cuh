// O from parts of it that blocks with different keys have computed: their mean, weighted by their sums of exponentials.
// After Flash-Decoding (2023).
#pragma once

#include "common/attention/exact.cuh"
#include "common/attention/softmax.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// Row `t` of head `h` of batch `b` of O, and its log-sum-exp. `parts` and `part_lse` are its (SPLIT, COLS) and (SPLIT),
/// COLS the next multiple of 4 columns; a part without a key has a log-sum-exp of -infinity, and nothing written. A block is
/// COLS / 4 threads along x, four columns each, by LANES along y, which share out the parts. Returns whether the thread's columns are finite; where scores are
/// so large that their rounding shows, they are NaN.
template <int HS, int SPLIT, int LANES, class T>
__device__ __forceinline__ bool combine_parts(const float* parts, const float* part_lse, const View<T, 4>& out, float* lse,
                                              int b, int h, int t)
{
    constexpr int ACROSS = (HS + 3) / 4;
    constexpr int COLS = 4 * ACROSS;
    constexpr int AT_ONCE = SPLIT > 64 ? 32 : SPLIT;  // parts whose sums are in registers: all, as long as they fit
    __shared__ __align__(16) float sums[LANES][COLS];

    float highest = minus_infinity();
#pragma unroll AT_ONCE
    for (int split = 0; split < SPLIT; ++split) highest = fmaxf(highest, part_lse[split]);
    float sum = 0.0f;
#pragma unroll AT_ONCE
    for (int split = 0; split < SPLIT; ++split) sum += exp2_fast((part_lse[split] - highest) * LOG2_E);
    const bool sees_keys = highest > minus_infinity();
    const float total = sees_keys ? highest + log2f(sum) * LN_2 : minus_infinity();
    if (threadIdx.x == 0 && threadIdx.y == 0) *lse = total;

    float mean[4] = {};
#pragma unroll
    for (int split = threadIdx.y; split < SPLIT; split += LANES) {
        if (part_lse[split] == minus_infinity()) continue;  // no key, and nothing written
        const float weight = exp2_fast((part_lse[split] - total) * LOG2_E);
        float part[4];
        load<4>(parts + split * COLS + 4 * threadIdx.x, part);
#pragma unroll
        for (int e = 0; e < 4; ++e) mean[e] = fmaf(weight, part[e], mean[e]);
    }
    store<4>(&sums[threadIdx.y][4 * threadIdx.x], mean);
    __syncthreads();
    const bool too_large = fabsf(highest) > LARGEST_SCORE * LN_2 && sees_keys;
    bool finite = !too_large;
    for (int col = threadIdx.y * ACROSS + threadIdx.x; col < HS; col += ACROSS * LANES) {
        float result = 0.0f;
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) result += sums[lane][col];
        const T rounded = from_float<T>(too_large ? not_a_number() : result);
        finite = finite && is_finite(to_float(rounded));
        matrix_of(out, b, h)[t * out.stride[2] + col * out.stride[3]] = rounded;
    }
    return finite;
}
