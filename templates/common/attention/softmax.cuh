// Softmax in base 2: exp(x) = exp2(x * log2(e)), so that scale and log2(e) are one factor and the exponential is one
// instruction. Online form after Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
#pragma once

#include "common/ptx/arithmetic.cuh"

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

/// One row of an online softmax over scores in base 2. NaN scores become NaN sums, not maxima.
struct OnlineRow {
    float maximum = minus_infinity();  // of all scores so far
    float sum = 0.0f;                  // of exp2(score - maximum)

    /// Raises the maximum to at least `score`; returns the factor that rescales what was summed before.
    __device__ __forceinline__ float raise(float score)
    {
        const float before = maximum;
        maximum = fmaxf(before, score);
        const float factor = exp2_fast(before - origin());
        sum *= factor;
        return factor;
    }

    /// What is subtracted from scores: the maximum, or 0 while every score is -inf (so that exp2 gives 0, not NaN).
    __device__ __forceinline__ float origin() const { return maximum == minus_infinity() ? 0.0f : maximum; }
};
