// 2^x in plain arithmetic: FMA units have time to spare where the special-function units are what attention waits for.
// Range reduction after Cody and Waite (1980); the idea of sharing exponentials out is FlashAttention-4's (2025).
#pragma once

#include "common/ptx/arithmetic.cuh"

/// 2^x for x up to 127, -infinity and NaN included, from a polynomial of degree 3, 4 or 5.
///
/// x = n + f with n whole and |f| <= 1/2; 2^f is the polynomial of least relative error: at most 7.6e-5 (degree 3),
/// 2.8e-6 (4) and 2.4e-7 (5), roundings included, while the result is at least 2^-126. Where n is -127 or less it is 0;
/// between the two (results from 2^-126.5 to 2^-126) it loses as many bits as the result has fewer.
template <int DEGREE>
__device__ __forceinline__ float exp2_polynomial(float x)
{
    static_assert(DEGREE >= 3 && DEGREE <= 5, "coefficients are known for degrees 3 to 5");
    constexpr float COEFFICIENTS[3][6] = {
        {0.99992806f, 0.69326097f, 0.24261113f, 0.055171669f},
        {0.99999928f, 0.69312179f, 0.24024744f, 0.055917859f, 0.0095701022f},
        {1.0000001f, 0.69314694f, 0.2402212f, 0.055507131f, 0.009675541f, 0.0013276472f},
    };
    constexpr float WHOLE = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to whole numbers
    const float bounded = at_least(x, -127.0f);
    const float shifted = bounded + WHOLE;  // n in its low bits
    const float f = bounded - (shifted - WHOLE);
    float y = COEFFICIENTS[DEGREE - 3][DEGREE];
#pragma unroll
    for (int i = DEGREE - 1; i >= 0; --i) y = fmaf(y, f, COEFFICIENTS[DEGREE - 3][i]);
    // n + 127 as the exponent of a float is 2^n, or 0 for n = -127.
    return y * __int_as_float((static_cast<unsigned>(__float_as_int(shifted)) << 23) + 0x3f800000u);
}
