// The online softmax of fp32 scores in wgmma's accumulators. Unlike accumulator_rows.cuh, whose weights are rounded to 16
// bits anyway, it subtracts each row's maximum so far as it is, and rescales at every step: sums of a tile are added in
// fp32 to those before, which costs no instruction more.
#pragma once

#include "common/attention/accumulator_rows.cuh"
#include "common/attention/score.cuh"
#include "common/warp/reduce.cuh"

/// From scores to weights, relative to each row's maximum so far. `factor` rescales what was summed before. A row's sum
/// takes this thread's columns alone; lanes are added up at the end.
template <int REGISTERS, bool CAUSAL>
__device__ __forceinline__ void soften_accumulators(float (&s)[REGISTERS], OnlineRow (&rows)[2], float (&factor)[2],
                                                    const Scores<CAUSAL>& scores)
{
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float highest[2] = {s[2 * r], s[2 * r + 1]};
#pragma unroll
        for (int n = 1; n < REGISTERS / 4; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) highest[e] = fmaxf(highest[e], s[4 * n + 2 * r + e]);
        factor[r] = rows[r].raise(scores.base2(reduce_lanes<Max, 1, 4>(fmaxf(highest[0], highest[1]))));
    }
    const float from[2] = {rows[0].origin(), rows[1].origin()};
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) s[i] = scores.weight(s[i], from[i / 2 % 2]);
    float parts[4] = {};  // in four, so that additions need not wait for one another
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) parts[i % 4] += s[i];
    rows[0].sum += parts[0] + parts[1];
    rows[1].sum += parts[2] + parts[3];
}
