// What the forward pass left of a query, as the gradients need it: its log-sum-exp, and the sum of dO * O.
#pragma once

#include "common/attention/softmax.cuh"

struct alignas(8) RowSums {
    float lse;    // in base 2; +inf, which makes all its weights 0, for a query without keys or past the last one
    float delta;  // sum of dO * O

    /// `log_sum`: natural, -inf for a query without keys or past the last one.
    static __device__ __forceinline__ RowSums of(float log_sum, float delta)
    {
        const bool sees_keys = log_sum != minus_infinity();
        return {sees_keys ? log_sum * LOG2_E : -minus_infinity(), sees_keys ? delta : 0.0f};
    }
};
