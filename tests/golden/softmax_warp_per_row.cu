// autotune: softmax/warp_per_row: a warp or a part of one a row: one pass over the scores, kept in registers as far as they go, online beyond
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: LANES=32 THREADS=128 REGISTERS=32 REDUCE=shuffle VEC=8 UNROLL=1 LOADS=cached STORES=cached MIN_WARPS=24 REVERSE=True GRID_MAP=x=rows,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          29092e7bb0414353

#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int LANES = 32;        // that share a row
constexpr int THREADS = 128;
constexpr int REGISTERS = 32;    // scores of a row that a thread keeps
constexpr int VEC = 8;           // elements an access
constexpr int UNROLL = 1;
constexpr Access LOADS = Access::CACHED;
constexpr Access STORES = Access::CACHED;

constexpr int ROWS = THREADS / LANES;
constexpr int STEP = LANES * VEC;         // keys that the lanes of a row take at a time
constexpr int KEPT = REGISTERS / VEC;     // steps whose scores are kept
constexpr int MIN_BLOCKS = 24 * 32 / THREADS;

/// Combines x over the lanes of a row.
template <class Op>
__device__ __forceinline__ float reduce_row(float x)
{
    return reduce_lanes<Op, 1, LANES>(x);
}

/// Scores in base 2 of the VEC keys from `key` on; -inf for those from `seen` on.
__device__ __forceinline__ void read_scores(float (&to)[VEC], const element* row, long long stride, int key, int seen,
                                            const Scores<CAUSAL>& scores, bool vectors)
{
    read_part<LOADS, VEC>(row, stride, key, seen, scores.T_kv, to, vectors);
#pragma unroll
    for (int e = 0; e < VEC; ++e) to[e] = key + e < seen ? scores.base2(to[e]) : minus_infinity();
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
row_softmax(View<element, 4> scores, View<element, 4> weights, int T, int T_kv, float scale)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int row = blockIdx.x * ROWS + threadIdx.x / LANES;
    const bool exists = row < T;  // threads without a row stay for the reductions
    const int query = T - 1 - row;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const int seen = exists ? mask.keys_seen(query) : 0;
    const int first = threadIdx.x % LANES * VEC;
    const element* const from = matrix_of(scores, batch, head) + (exists ? query : 0) * scores.stride[2];
    element* const to = matrix_of(weights, batch, head) + (exists ? query : 0) * weights.stride[2];
    // Without whole vectors nothing is kept, and elements are read and written one by one.
    const bool vectors = allows_vectors<VEC>(scores) && allows_vectors<VEC>(weights) && T_kv % VEC == 0;
    const int rest = (vectors ? KEPT * STEP : 0) + first;

    float kept[KEPT > 0 ? KEPT : 1][VEC];
    float maximum = minus_infinity();
    if (vectors) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
            const int key = step * STEP + first;
            if (key < seen) read_row<LOADS, VEC>(from + key, kept[step]);
        }
#pragma unroll
        for (int step = 0; step < KEPT; ++step)
#pragma unroll
            for (int e = 0; e < VEC; ++e) {
                kept[step][e] = step * STEP + first + e < seen ? mask.base2(kept[step][e]) : minus_infinity();
                maximum = fmaxf(maximum, kept[step][e]);
            }
    }
    OnlineRow total;  // of this thread's part of the row
#pragma unroll UNROLL
    for (int key = rest; key < seen; key += STEP) {
        float part[VEC];
        read_scores(part, from, scores.stride[3], key, seen, mask, vectors);
        float highest = part[0];
#pragma unroll
        for (int e = 1; e < VEC; ++e) highest = fmaxf(highest, part[e]);
        total.raise(highest);
#pragma unroll
        for (int e = 0; e < VEC; ++e) total.sum += exp2_fast(part[e] - total.origin());
    }
    total.raise(reduce_row<Max>(fmaxf(maximum, total.maximum)));
    if (vectors) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
            if (step * STEP >= seen) break;
#pragma unroll
            for (int e = 0; e < VEC; ++e) {
                kept[step][e] = exp2_fast(kept[step][e] - total.origin());
                total.sum += kept[step][e];
            }
        }
    }
    const float sum = reduce_row<Sum>(total.sum);
    if (!exists) return;

    const float factor = seen > 0 ? 1.0f / sum : 0.0f;
    if (vectors) {
#pragma unroll
        for (int step = 0; step < KEPT; ++step) {
            const int key = step * STEP + first;
#pragma unroll
            for (int e = 0; e < VEC; ++e) kept[step][e] = key + e < seen ? kept[step][e] * factor : 0.0f;
            if (key < T_kv) write_row<STORES, VEC>(to + key, kept[step]);
        }
    }
#pragma unroll UNROLL
    for (int key = rest; key < T_kv; key += STEP) {
        float part[VEC];
        read_scores(part, from, scores.stride[3], key, seen, mask, vectors);
#pragma unroll
        for (int e = 0; e < VEC; ++e)
            part[e] = key + e < seen ? exp2_fast(part[e] - total.origin()) * factor : 0.0f;
        write_part<STORES>(to, weights.stride[3], key, T_kv, part, vectors);
    }
}

// buffer scores: 50331648 fp16, input
// buffer weights: 50331648 fp16, output
// launch row_softmax grid=(256, 12, 4) block=(128, 1, 1) smem=0 (scores, weights, T, T_kv, scale)
