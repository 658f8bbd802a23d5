// O from parts of it that blocks with different keys have computed: their mean, weighted by their sums of exponentials.
// After Flash-Decoding (2023).
#pragma once

#include "common/attention/exact.cuh"
#include "common/attention/softmax.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// The log-sum-exp of a block's part of a row, from the sum of its weights and the logarithm that comes of it: -infinity
/// without keys. Weights that are all 0 beside keys come of scores beyond what a float holds: NaN, for which
/// `combine_splits_of_row` computes the row again.
__device__ __forceinline__ float part_log_sum(bool sees_keys, float sum, float log_sum)
{
    const float of_keys = sum == 0.0f ? not_a_number() : log_sum;
    return sees_keys ? of_keys : minus_infinity();
}

/// Row `t` of head `h` of batch `b` of O, and its log-sum-exp. `parts` and `part_lse` are its (SPLIT, COLS) and (SPLIT),
/// COLS the next multiple of 4 columns; a part without a key has a log-sum-exp of -infinity, and nothing written. A block is
/// COLS / 4 threads along x, four columns each, by LANES along y, which share out the parts. Returns whether the thread's
/// columns are finite; where a part's log-sum-exp is NaN, or scores are so large that their rounding shows, they are NaN.
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

/// The block's row of O, of all (B, NH, T), from the parts of all splits: `partial_out` (rows, SPLIT, COLS), `partial_lse`
/// (rows, SPLIT). What is not finite is computed again as it is defined. Blocks as `combine_parts` has them, a warp or more.
template <int SPLIT, int LANES, int HS, bool CAUSAL, class T, int HS_V>
__device__ __forceinline__ void combine_splits_of_row(const float* partial_out, const float* partial_lse,
                                                      const View<T, 4>& out, float* lse,
                                                      const ExactForward<HS, CAUSAL, T, HS_V>& exact)
{
    constexpr int ACROSS = (HS_V + 3) / 4;
    const long long row = blockIdx.x;
    const int query = blockIdx.x % exact.scores.T;
    const int head = blockIdx.x / exact.scores.T % exact.NH;
    const int batch = blockIdx.x / exact.scores.T / exact.NH;
    const bool finite = combine_parts<HS_V, SPLIT, LANES>(partial_out + row * SPLIT * 4 * ACROSS, partial_lse + row * SPLIT,
                                                          out, lse + row, batch, head, query);

    if (!__syncthreads_or(!finite) || threadIdx.y * ACROSS + threadIdx.x >= 32) return;
    exact.mend(out, lse, batch, head, query);
}
