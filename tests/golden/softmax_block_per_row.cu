// autotune: softmax/block_per_row: a block a row: maximum and sum reduced over the block, by a tree in shared memory or by shuffles
// problem:       B=4 NH=12 T=1024 T_kv=1024 dtype=fp16 causal=1 scale=0.125
// configuration: THREADS=128 ROWS=1 REDUCE=shuffle KEEP=shared PASSES=three VEC=8 UNROLL=2 LOADS=cached STORES=cached REVERSE=True GRID_MAP=x=rows,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          ead3cc8a72fc3177

#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/tile/row_access.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

using element = __half;

constexpr bool CAUSAL = true;
constexpr int THREADS = 128;
constexpr int ROWS = 1;           // a block, one after the other
constexpr int VEC = 8;            // elements an access
constexpr int UNROLL = 2;
constexpr Access LOADS = Access::CACHED;
constexpr Access STORES = Access::CACHED;

constexpr int STEP = THREADS * VEC;        // keys that the block takes at a time

/// Combines x over the block.
template <class Op>
__device__ __forceinline__ float reduce_row(float x)
{
    __shared__ float scratch[THREADS / 32];
    return reduce_block<Op, THREADS>(x, scratch);
}

/// A row of scores in base 2, VEC at a time; each thread asks for its own keys only.
struct Row {
    const element* from;
    long long stride;
    int seen;
    bool vectors;
    Scores<CAUSAL> mask;
    float* kept;

    /// -inf for keys that are not seen.
    __device__ __forceinline__ void read(float (&to)[VEC], int key, bool first) const
    {
        if (!first) {
            load<VEC>(kept + key, to);
            return;
        }
        (void)first;
        read_part<LOADS, VEC>(from, stride, key, seen, mask.T_kv, to, vectors);
#pragma unroll
        for (int e = 0; e < VEC; ++e) to[e] = key + e < seen ? mask.base2(to[e]) : minus_infinity();
        store<VEC>(kept + key, to);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
row_softmax(View<element, 4> scores, View<element, 4> weights, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const Scores<CAUSAL> mask(T, T_kv, scale);
    const int first = threadIdx.x * VEC;
    const bool vectors_in = allows_vectors<VEC>(scores);
    const bool vectors_out = allows_vectors<VEC>(weights);

    const int begin = blockIdx.x * ROWS;
#pragma unroll 1
    for (int row = begin; row < min(begin + ROWS, T); ++row) {
        const int query = T - 1 - row;
        const int seen = mask.keys_seen(query);
        const Row scores_row{matrix_of(scores, batch, head) + query * scores.stride[2],
                             scores.stride[3],
                             seen,
                             vectors_in,
                             mask,
                             reinterpret_cast<float*>(smem)};
        OnlineRow total;
#pragma unroll UNROLL
        for (int key = first; key < seen; key += STEP) {
            float part[VEC];
            scores_row.read(part, key, true);
#pragma unroll
            for (int e = 0; e < VEC; ++e) total.maximum = fmaxf(total.maximum, part[e]);
        }
        total.maximum = reduce_row<Max>(total.maximum);
#pragma unroll UNROLL
        for (int key = first; key < seen; key += STEP) {
            float part[VEC];
            scores_row.read(part, key, false);
#pragma unroll
            for (int e = 0; e < VEC; ++e) total.sum += exp2_fast(part[e] - total.origin());
        }
        const float sum = reduce_row<Sum>(total.sum);
        const float factor = seen > 0 ? 1.0f / sum : 0.0f;
        element* const to = matrix_of(weights, batch, head) + query * weights.stride[2];
#pragma unroll UNROLL
        for (int key = first; key < T_kv; key += STEP) {
            float part[VEC] = {};
            if (key < seen) {
                scores_row.read(part, key, false);
#pragma unroll
                for (int e = 0; e < VEC; ++e)
                    part[e] = key + e < seen ? exp2_fast(part[e] - total.origin()) * factor : 0.0f;
            }
            write_part<STORES>(to, weights.stride[3], key, T_kv, part, vectors_out);
        }
    }
}

// buffer scores: 50331648 fp16, input
// buffer weights: 50331648 fp16, output
// launch row_softmax grid=(1024, 12, 4) block=(128, 1, 1) smem=4096 (scores, weights, T, T_kv, scale)
