// autotune: forward/minimal_flash: the smallest flash attention: a block a head, a thread a row, keys in the outer loop, O rescaled in memory
// problem:       B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd
// configuration: THREADS=128 BLOCK_N=32 Q_IN=shared SMEM_PAD=1 UNROLL=2 VEC=4 GRID_MAP=x=head,y=batch
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          307e225f96840ecf

#include "common/attention/exact.cuh"
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/arithmetic.cuh"
#include "common/tile/staged.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int HS = 64;
constexpr int HS_V = 64;  // of V and O
constexpr bool CAUSAL = true;
constexpr int THREADS = 128;  // rows that a block takes at a time
constexpr int BLOCK_N = 32;   // keys in shared memory
constexpr int ROW = HS + 1;  // floats between rows of Q and K in shared memory
constexpr int V_ROW = HS_V + 1;  // and of V
constexpr int UNROLL = 2;
constexpr int VEC = 4;        // elements a read of K and V

extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(View<element, 4> q, View<element, 4> k, View<element, 4> v, View<element, 4> out,
                  float* __restrict__ lse, float* __restrict__ maxima, float* __restrict__ sums,
                  float* __restrict__ totals, int NH, int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const k_tile = reinterpret_cast<float*>(smem);
    float* const v_tile = k_tile + BLOCK_N * ROW;
    float* const own_scores = v_tile + BLOCK_N * V_ROW + threadIdx.x;  // of this thread's row, THREADS floats apart
    float* const own_query = v_tile + BLOCK_N * (V_ROW + THREADS) + threadIdx.x * ROW;

    const int batch = blockIdx.y;
    const int head = blockIdx.x;
    const long long first_row = (static_cast<long long>(batch) * NH + head) * T;
    const Scores<CAUSAL> scores(T, T_kv, scale);
    const element* const queries = matrix_of(q, batch, head);
    const element* const keys = matrix_of(k, batch, head / (NH / NH_kv));
    const element* const values = matrix_of(v, batch, head / (NH / NH_kv));
    const bool vectors_k = allows_vectors<VEC>(k);
    const bool vectors_v = allows_vectors<VEC>(v);

    // What a row has come to so far lies in memory; only the thread that owns the row touches it.
#pragma unroll 1
    for (int query = threadIdx.x; query < T; query += THREADS) {
        maxima[first_row + query] = minus_infinity();
        sums[first_row + query] = 0.0f;
        float* const total = totals + (first_row + query) * HS_V;
#pragma unroll UNROLL
        for (int d = 0; d < HS_V; ++d) total[d] = 0.0f;
    }

#pragma unroll 1
    for (int key = 0; key < T_kv; key += BLOCK_N) {
        __syncthreads();  // the tiles before have been read
        stage<BLOCK_N, HS, ROW, VEC, THREADS>(k_tile, keys + key * k.stride[2], k.stride[2], k.stride[3], T_kv - key,
                                              vectors_k);
        stage<BLOCK_N, HS_V, V_ROW, VEC, THREADS>(v_tile, values + key * v.stride[2], v.stride[2], v.stride[3], T_kv - key,
                                              vectors_v);
        __syncthreads();
#pragma unroll 1
        for (int query = threadIdx.x; query < T; query += THREADS) {
            const int count = min(BLOCK_N, scores.keys_seen(query) - key);
            if (count <= 0) continue;
            const element* const from = queries + query * q.stride[2];
#pragma unroll UNROLL
            for (int d = 0; d < HS; ++d) own_query[d] = to_float(from[d * q.stride[3]]);
            OnlineRow row;
            float largest = minus_infinity();
#pragma unroll 1
            for (int j = 0; j < count; ++j) {
                float dot = 0.0f;
#pragma unroll UNROLL
                for (int d = 0; d < HS; ++d)
                    dot += own_query[d] * k_tile[j * ROW + d];
                const float score = scores.base2(dot);
                own_scores[j * THREADS] = score;
                largest = fmaxf(largest, score);
            }
            row.maximum = maxima[first_row + query];
            row.sum = sums[first_row + query];
            const float factor = row.raise(largest);
#pragma unroll UNROLL
            for (int j = 0; j < count; ++j) {
                const float weight = exp2_fast(own_scores[j * THREADS] - row.origin());
                own_scores[j * THREADS] = weight;
                row.sum += weight;
            }
            maxima[first_row + query] = row.maximum;
            sums[first_row + query] = row.sum;
            float* const total = totals + (first_row + query) * HS_V;
#pragma unroll 1
            for (int d = 0; d < HS_V; ++d) {
                float sum = total[d] * factor;
#pragma unroll UNROLL
                for (int j = 0; j < count; ++j) sum += own_scores[j * THREADS] * v_tile[j * V_ROW + d];
                total[d] = sum;
            }
        }
    }

    element* const result = matrix_of(out, batch, head);
#pragma unroll 1
    for (int query = threadIdx.x; query < T; query += THREADS) {
        OnlineRow row;
        row.maximum = maxima[first_row + query];
        row.sum = sums[first_row + query];
        lse[first_row + query] = scores.log_sum_exp(row);
        const float factor = row.sum == 0.0f ? 0.0f : 1.0f / row.sum;  // a row without keys is 0
        const float* const total = totals + (first_row + query) * HS_V;
#pragma unroll UNROLL
        for (int d = 0; d < HS_V; ++d)
            result[query * out.stride[2] + d * out.stride[3]] = from_float<element>(total[d] * factor);
    }

    __syncthreads();  // O is written
    const ExactForward<HS, CAUSAL, element, HS_V> exact = {read_only(q), read_only(k), read_only(v), NH, NH / NH_kv, scores};
#pragma unroll 1
    for (int query = threadIdx.x / 32; query < T; query += THREADS / 32) exact.mend(out, lse, batch, head, query);
}

// buffer q: 3145728 fp16, input
// buffer k: 3145728 fp16, input
// buffer v: 3145728 fp16, input
// buffer out: 3145728 fp16, output
// buffer lse: 49152 fp32, output
// buffer maxima: 49152 fp32, workspace
// buffer sums: 49152 fp32, workspace
// buffer totals: 3145728 fp32, workspace
// launch attention_forward grid=(12, 4, 1) block=(128, 1, 1) smem=66304 (q, k, v, out, lse, maxima, sums, totals, NH, NH_kv, T, T_kv, scale)
