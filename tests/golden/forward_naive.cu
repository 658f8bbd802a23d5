// autotune: forward/naive: three kernels without a shared tile: a thread a score, a thread a row of the softmax, a thread an output
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: THREADS=256 ROW_THREADS=64 PASSES=three UNROLL=1 GRID_MAP=x=matrix,y=head,z=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          1f210901516160be

#include "common/attention/exact.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int HS_V = 64;  // of V and O
constexpr bool CAUSAL = true;
constexpr int THREADS = 256;     // a block of scores, and of outputs
constexpr int ROW_THREADS = 64;  // a block of the softmax
constexpr int UNROLL = 1;

/// weights[b, h, query, key] = score in base 2, where the query sees the key.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_scores(View<element, 4> q, View<element, 4> k, float* __restrict__ weights, int NH, int NH_kv, int T,
                 int T_kv, float scale)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int block = blockIdx.x;
    const int key_blocks = (T_kv + THREADS - 1) / THREADS;
    const int query = block / key_blocks;
    const int key = block % key_blocks * THREADS + threadIdx.x;
    const Scores<CAUSAL> scores(T, T_kv, scale);
    if (!scores.visible(query, key)) return;

    const element* const from = matrix_of(q, batch, head) + query * q.stride[2];
    const element* const with = matrix_of(k, batch, head / (NH / NH_kv)) + key * k.stride[2];
    float dot = 0.0f;
#pragma unroll UNROLL
    for (int d = 0; d < HS; ++d) dot += to_float(from[d * q.stride[3]]) * to_float(with[d * k.stride[3]]);
    weights[((static_cast<long long>(batch) * NH + head) * T + query) * T_kv + key] = scores.base2(dot);
}

/// Row by row, in place: weights = softmax(weights); lse = log of the row's sum.
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
attention_softmax(float* __restrict__ weights, float* __restrict__ lse, int NH, int T, int T_kv, float scale)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const int query = blockIdx.x * ROW_THREADS + threadIdx.x;
    if (query >= T) return;
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const int seen = scores.keys_seen(query);
    float* const row = weights + ((static_cast<long long>(batch) * NH + head) * T + query) * T_kv;

    OnlineRow total;
#pragma unroll UNROLL
    for (int key = 0; key < seen; ++key) total.maximum = fmaxf(total.maximum, row[key]);
#pragma unroll UNROLL
    for (int key = 0; key < seen; ++key) total.sum += exp2_fast(row[key] - total.origin());
    lse[(static_cast<long long>(batch) * NH + head) * T + query] = scores.log_sum_exp(total);
    const float factor = 1.0f / total.sum;
#pragma unroll UNROLL
    for (int key = 0; key < seen; ++key) row[key] = exp2_fast(row[key] - total.origin()) * factor;
}

/// out = weights times V.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_output(const float* __restrict__ weights, View<element, 4> q, View<element, 4> k, View<element, 4> v,
                 View<element, 4> out, float* __restrict__ lse, int NH, int NH_kv, int T, int T_kv, float scale)
{
    const int batch = blockIdx.z;
    const int head = blockIdx.y;
    const long long output = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    const int query = output / HS_V;
    const int d = output % HS_V;
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const int seen = query < T ? scores.keys_seen(query) : 0;
    const float* const row = weights + ((static_cast<long long>(batch) * NH + head) * T + query) * T_kv;
    const element* const values = matrix_of(v, batch, head / (NH / NH_kv)) + d * v.stride[3];

    float sum = 0.0f;
#pragma unroll UNROLL
    for (int key = 0; key < seen; ++key) sum += row[key] * to_float(values[key * v.stride[2]]);
    element* const result = matrix_of(out, batch, head) + query * out.stride[2] + d * out.stride[3];
    if (query < T) *result = from_float<element>(sum);

    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k), read_only(v), NH, NH / NH_kv, scores};
    bool wrong = query < T && !is_finite(to_float(from_float<element>(sum)));
#pragma unroll 1
    while (const unsigned lanes = __ballot_sync(ALL_LANES, wrong)) {  // the outputs of a warp may lie in several rows
        const int there = __shfl_sync(ALL_LANES, query, __ffs(lanes) - 1);
        const bool own = query == there && query < T;
        const double log_sum = exact.log_sum_exp(batch, head, there);
        const double right = exact.column(batch, head, there, log_sum, own ? d : HS_V);
        if (own) *result = from_float<element>(static_cast<float>(right));
        if (own && d == 0) lse[(static_cast<long long>(batch) * NH + head) * T + query] = static_cast<float>(log_sum);
        wrong = wrong && !own;
    }
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// buffer weights: 50331648 fp32, workspace
// launch attention_scores grid=(4096, 12, 4) block=(256, 1, 1) smem=0 (q, k, weights, NH, NH_kv, T, T_kv, scale)
// launch attention_softmax grid=(16, 12, 4) block=(64, 1, 1) smem=0 (weights, lse, NH, T, T_kv, scale)
// launch attention_output grid=(256, 12, 4) block=(256, 1, 1) smem=0 (weights, q, k, v, out, lse, NH, NH_kv, T, T_kv, scale)
