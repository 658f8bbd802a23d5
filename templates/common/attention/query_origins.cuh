// What the forward pass left of each query, as the gradients need it, in arrays of their own: the origin that its scores'
// weights subtract, in base 2, and its delta, the sum of dO * O.
#pragma once

#include "common/attention/exact.cuh"
#include "common/attention/row_dots.cuh"
#include "common/attention/score.cuh"

/// For one of the rows of all matrices, `rows` each, by LANES neighbouring threads; a query without keys or past the last
/// one gets an origin of +inf and a delta of 0, one whose log-sum-exp is beyond `limit` in base 2 NaN. Returns the row's
/// number, -1 beyond the rows. Whole warps call it.
template <int HS, int THREADS, int LANES, bool CAUSAL, class T>
__device__ __forceinline__ long long write_origin(const View<const T, 4>& out, const View<const T, 4>& dout,
                                                  const float* log_sums, float* origins, float* deltas, int NH, int rows,
                                                  const Scores<CAUSAL>& scores, float limit)
{
    const RowPlace place = row_of_thread<THREADS, LANES>(NH, rows);
    const bool exists = place.t < scores.T;
    const float log_sum = exists ? log_sums[place.number(NH, scores.T)] : minus_infinity();
    float delta = 0.0f;
    if constexpr (HS % 8 == 0) {
        const bool vectors = allows_vectors<8>(out) && allows_vectors<8>(dout);
        if (exists)
            delta = vectors ? dot_of_lane<HS, 8, LANES>(out, dout, place, true)
                            : dot_of_lane<HS, 8, LANES>(out, dout, place, false);
    } else if (exists) {
        delta = dot_of_lane<HS, 1, LANES>(out, dout, place, false);  // neighbouring lanes read neighbouring elements
    }
    delta = reduce_lanes<Sum, 1, LANES>(delta);
    if (place.t >= rows) return -1;
    const long long number = place.number(NH, rows);
    if (threadIdx.x % LANES == 0) {
        origins[number] = scores.origin_of(trusted_log_sum(log_sum, limit));
        deltas[number] = log_sum != minus_infinity() ? delta : 0.0f;
    }
    return number;
}
