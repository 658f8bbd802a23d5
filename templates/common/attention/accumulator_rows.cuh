// The online softmax of scores that lie in wgmma's accumulators: a thread has N / 2 scores of two rows, 8 apart, whose
// other scores its three neighbours have. Rescaling only where the maximum grows much is FlashAttention-4's (2025).
#pragma once

#include "common/attention/score.cuh"
#include "common/types.cuh"
#include "common/warp/reduce.cuh"

/// First row of the thread's two, of the 64 of its warp group, and first column of its pairs, of the 8 of a block.
__device__ __forceinline__ int accumulator_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }
__device__ __forceinline__ int accumulator_col() { return threadIdx.x % 4 * 2; }

/// Hides the scores of keys that rows do not see. `beyond`: how far each row's first score lies beyond its last key.
template <int REGISTERS>
__device__ __forceinline__ void hide_beyond(float (&s)[REGISTERS], const int (&beyond)[2])
{
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i)
        if (beyond[i / 2 % 2] + i / 4 * 8 + i % 2 > 0) s[i] = minus_infinity();
}

/// What a thread knows of its two rows so far.
template <int N, bool CAUSAL>
struct AccumulatorRows {
    static constexpr float GROWTH = 8.0f;              // sums are not rescaled for less: weights stay below 2^GROWTH
    static constexpr float LOWEST = -3.402823466e38f;  // a maximum before there are scores: finite, so never NaN
    static constexpr float COARSE = 1024.0f;           // from here on scores in base 2 are rounded to 2^-14 and more

    float maximum[2] = {LOWEST, LOWEST};  // of the rows' dot products, near enough
    float sum[2] = {0.0f, 0.0f};          // of this thread's weights: lanes are added up at the end
    float factor[2];                      // by which the last growth rescales
    bool coarse = false;                  // somewhere in the warp

    /// What is subtracted from scores in base 2.
    __device__ __forceinline__ float origin(int r, const Scores<CAUSAL>& scores) const
    {
        return fmaxf(scores.base2(maximum[r]), LOWEST);
    }

    /// From scores to weights. Where a row of the warp has grown much: true, and what was summed with earlier weights is
    /// to be multiplied by `factor`.
    __device__ __forceinline__ bool weigh(float (&s)[N / 2], const Scores<CAUSAL>& scores)
    {
        const float highest[2] = {highest_of(s, 0), highest_of(s, 1)};
        float from[2] = {origin(0, scores), origin(1, scores)};
        const bool grows = __any_sync(ALL_LANES, scores.base2(highest[0]) > from[0] + GROWTH ||
                                                     scores.base2(highest[1]) > from[1] + GROWTH);
        if (grows) {
            bool large = false;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float before = maximum[r];
                maximum[r] = fmaxf(before, reduce_lanes<Max, 1, 4>(highest[r]));
                factor[r] = exp2_fast(scores.base2(before - maximum[r]));
                sum[r] *= factor[r];
                from[r] = origin(r, scores);
                large = large || (fabsf(from[r]) > COARSE && maximum[r] > LOWEST);
            }
            coarse = __any_sync(ALL_LANES, large);
        }
        if (coarse) {  // an unrounded product and a rounded maximum would differ by much: subtract before scaling
#pragma unroll
            for (int i = 0; i < N / 2; ++i) s[i] -= maximum[i / 2 % 2];
            from[0] = from[1] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < N / 2; ++i) s[i] = scores.weight(s[i], from[i / 2 % 2]);
        float parts[4] = {};  // in four, so that additions need not wait for one another
#pragma unroll
        for (int i = 0; i < N / 2; ++i) parts[i % 4] += s[i];
        sum[0] += parts[0] + parts[1];
        sum[1] += parts[2] + parts[3];
        return grows;
    }

    /// Row r's sum of all lanes, and the natural logarithm of its sum of exponentials.
    __device__ __forceinline__ float whole_sum(int r) const { return reduce_lanes<Sum, 1, 4>(sum[r]); }
    __device__ __forceinline__ float log_sum_exp(int r, float whole, const Scores<CAUSAL>& scores) const
    {
        return fmaf(maximum[r], scores.scale, log2f(whole) * LN_2);
    }

  private:
    __device__ __forceinline__ static float highest_of(const float (&s)[N / 2], int r)
    {
        float parts[2] = {fmaxf(s[2 * r], s[2 * r + 1]), fmaxf(s[4 + 2 * r], s[4 + 2 * r + 1])};
#pragma unroll
        for (int n = 2; n < N / 8; ++n)
            parts[n % 2] = fmaxf(parts[n % 2], fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
        return fmaxf(parts[0], parts[1]);
    }
};

/// Weights of 16 keys, rounded, as an operand A of wgmma: where they lie is where it wants them.
template <class T>
__device__ __forceinline__ void round_weights(uint32_t (&p)[4], const float (&s)[8])
{
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}

/// As many operands as there are 16 keys.
template <class T, int STEPS>
__device__ __forceinline__ void round_weights(uint32_t (&p)[STEPS][4], const float (&s)[8 * STEPS])
{
#pragma unroll
    for (int i = 0; i < 4 * STEPS; ++i) p[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}
