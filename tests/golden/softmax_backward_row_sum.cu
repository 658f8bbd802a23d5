// autotune: softmax_backward/row_sum: dS = P(dP - rowsum(P dP)): one sum a row, by a part of a warp, a warp or a block
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: LANES=32 THREADS=128 ROWS_EACH=1 REGISTERS=32 REDUCE=shuffle VEC=8 UNROLL=1 LOADS=cached STORES=cached MIN_WARPS=16 REVERSE=True GRID_MAP=x=rows,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          9a1f64d64d10fa34

#include "common/attention/score.cuh"
#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int LANES = 32;        // threads that share a row
constexpr int THREADS = 128;
constexpr int ROWS_EACH = 1;     // rows one after the other
constexpr int REGISTERS = 32;    // elements of P and of dP that a thread keeps
constexpr int VEC = 8;           // elements an access
constexpr int UNROLL = 1;
constexpr Access LOADS = Access::CACHED;
constexpr Access STORES = Access::CACHED;

constexpr int ROWS = THREADS / LANES;
constexpr int STEP = LANES * VEC;         // keys that the threads of a row take at a time
constexpr int KEPT = REGISTERS / VEC;     // steps whose elements are kept
constexpr int MIN_BLOCKS = 16 * 32 / THREADS;

/// Sums x over the threads of a row.
__device__ __forceinline__ float sum_row(float x)
{
    return reduce_lanes<Sum, 1, LANES>(x);
}

/// VEC elements of a row of P and of dP.
struct Pair {
    float p[VEC];
    float dp[VEC];

    __device__ __forceinline__ float dot(int count) const
    {
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < VEC; ++e)
            if (e < count) sum += p[e] * dp[e];
        return sum;
    }

    __device__ __forceinline__ void gradient(float (&to)[VEC], float sum, int count, const Scores<CAUSAL>& mask) const
    {
#pragma unroll
        for (int e = 0; e < VEC; ++e) to[e] = e < count ? p[e] * mask.score_gradient(dp[e] - sum) : 0.0f;
    }
};

/// The same as they lie in memory.
struct KeptPair {
    Vector<element, VEC> p;
    Vector<element, VEC> dp;

    __device__ __forceinline__ Pair unpacked() const
    {
        Pair pair;
#pragma unroll
        for (int e = 0; e < VEC; ++e) {
            pair.p[e] = to_float(p.at[e]);
            pair.dp[e] = to_float(dp.at[e]);
        }
        return pair;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
softmax_gradient(View<element, 4> weights, View<element, 4> d_weights, View<element, 4> d_scores, int T, int T_kv,
                 float scale)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const int first = threadIdx.x % LANES * VEC;
    // Without whole vectors nothing is kept, and elements are read and written one by one.
    const bool vectors = allows_vectors<VEC>(weights) && allows_vectors<VEC>(d_weights) &&
                         allows_vectors<VEC>(d_scores) && T_kv % VEC == 0;
    const int rest = (vectors ? KEPT * STEP : 0) + first;

    const int begin = blockIdx.x * ROWS * ROWS_EACH + threadIdx.x / LANES;
#pragma unroll 1
    for (int row = begin; row < begin + ROWS * ROWS_EACH; row += ROWS) {
        const bool exists = row < T;  // threads without a row stay for the reductions
        const int query = exists ? T - 1 - row : 0;
        const int seen = exists ? mask.keys_seen(query) : 0;
        const element* const p = matrix_of(weights, batch, head) + query * weights.stride[2];
        const element* const dp = matrix_of(d_weights, batch, head) + query * d_weights.stride[2];
        const auto read = [&](int key) {
            Pair pair;
            read_part<LOADS, VEC>(p, weights.stride[3], key, seen, T_kv, pair.p, vectors);
            read_part<LOADS, VEC>(dp, d_weights.stride[3], key, seen, T_kv, pair.dp, vectors);
            return pair;
        };

        KeptPair kept[KEPT > 0 ? KEPT : 1];
        float sum = 0.0f;
        if (vectors) {
#pragma unroll
            for (int step = 0; step < KEPT; ++step) {
                const int key = step * STEP + first;
                if (key >= seen) break;
                kept[step].p = read_vector<LOADS, VEC>(p + key);
                kept[step].dp = read_vector<LOADS, VEC>(dp + key);
            }
#pragma unroll
            for (int step = 0; step < KEPT; ++step) {
                if (step * STEP >= seen) break;
                sum += kept[step].unpacked().dot(seen - step * STEP - first);
            }
        }
#pragma unroll UNROLL
        for (int key = rest; key < seen; key += STEP) sum += read(key).dot(VEC);
        sum = sum_row(sum);
        if (!exists) continue;

        element* const ds = matrix_of(d_scores, batch, head) + query * d_scores.stride[2];
        float gradient[VEC];
        if (vectors) {
#pragma unroll
            for (int step = 0; step < KEPT; ++step) {
                const int key = step * STEP + first;
                if (key >= T_kv) break;
                kept[step].unpacked().gradient(gradient, sum, seen - key, mask);
                write_row<STORES, VEC>(ds + key, gradient);
            }
        }
#pragma unroll UNROLL
        for (int key = rest; key < T_kv; key += STEP) {
            read(key).gradient(gradient, sum, seen - key, mask);
            write_part<STORES>(ds, d_scores.stride[3], key, T_kv, gradient, vectors);
        }
    }
}

// buffer weights: 50331648 fp16, input
// buffer d_weights: 50331648 fp16, input
// buffer d_scores: 50331648 fp16, output
// launch softmax_gradient grid=(256, 12, 4) block=(128, 1, 1) smem=0 (weights, d_weights, d_scores, T, T_kv, scale)
