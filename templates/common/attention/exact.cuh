// Attention as it is defined, in fp64, a row at a time by a warp: for the rows that came out of a fast kernel as NaN or
// infinite. Tiles multiply what a row does not see by 0, and 0 * NaN is NaN; scores and gradients leave the range of fp32
// or fp16 on the way to results that lie within it; and where scores are so large that their rounding shows, kernels
// write NaN on purpose. Here only visible positions are read, and nothing of a finite input overflows: a row is NaN or
// infinite afterwards only where it really is. Rows that are right cost one look at their elements.
#pragma once

#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/opaque.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/reduce.cuh"

/// Of scores beyond this, in base 2, neighbouring floats lie further apart than 2^-4: kernels leave such rows to this file.
constexpr float LARGEST_SCORE = 1048576.0f;

__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

/// What a kernel of the backward pass subtracts from scores in place of a row's log-sum-exp: +inf, which makes all weights
/// 0, for a row without keys, and NaN where it is beyond `limit` in base 2.
__device__ __forceinline__ float trusted_log_sum(float log_sum, float limit = LARGEST_SCORE)
{
    if (log_sum == minus_infinity()) return -minus_infinity();
    return fabsf(log_sum) > limit * LN_2 && is_finite(log_sum) ? not_a_number() : log_sum;
}

template <class T>
__device__ __forceinline__ View<const T, 4> read_only(const View<T, 4>& tensor)
{
    return {tensor.data, {tensor.stride[0], tensor.stride[1], tensor.stride[2], tensor.stride[3]}};
}

template <class T>
__device__ __forceinline__ double exactly(T x) { return static_cast<double>(to_float(x)); }

/// Row `row` of matrix (b, h).
template <class T>
__device__ __forceinline__ T* exact_row(const View<T, 4>& tensor, int b, int h, int row)
{
    return matrix_of(tensor, b, h) + row * tensor.stride[2];
}

/// The product of two rows of HS elements.
template <int HS, class T>
__device__ __forceinline__ double exact_dot(const T* a, long long a_stride, const T* b, long long b_stride)
{
    double sum = 0.0;
#pragma unroll 1
    for (int d = 0; d < HS; ++d) sum = fma(exactly(a[d * a_stride]), exactly(b[d * b_stride]), sum);
    return sum;
}

/// Of the warp; blocks may have two dimensions. Computed anew: nothing is kept for this file while a kernel does its work.
__device__ __forceinline__ int own_lane()
{
    return (threadIdx.y * blockDim.x + static_cast<unsigned>(opaque(threadIdx.x))) % 32;
}

/// Whether a row of HS elements is finite; for a whole warp.
template <int HS, class T>
__device__ __forceinline__ bool row_is_finite(const T* row, long long stride)
{
    bool finite = true;
#pragma unroll 1
    for (int d = own_lane(); d < HS; d += 32) finite = finite && is_finite(to_float(row[d * stride]));
    return __all_sync(ALL_LANES, finite);
}

/// What the forward pass computes; rows of V and O have HS_V elements. All functions are called by whole warps.
template <int HS, bool CAUSAL, class T, int HS_V = HS>
struct ExactForward {
    View<const T, 4> q;
    View<const T, 4> k;
    View<const T, 4> v;
    int NH;
    int group;  // heads that share a key head
    Scores<CAUSAL> scores;

    /// The score of a visible pair.
    __device__ __forceinline__ double score(int b, int h, int query, int key) const
    {
        return exact_dot<HS>(exact_row(q, b, h, query), q.stride[3], exact_row(k, b, h / group, key), k.stride[3]) *
               scores.scale;
    }

    /// The log-sum-exp of a row: -inf without keys, NaN where the row is NaN.
    __device__ __forceinline__ double log_sum_exp(int b, int h, int query) const
    {
        const double lowest = minus_infinity();
        const int seen = scores.keys_seen(query);
        double maximum = lowest;  // of this lane's keys
        double sum = 0.0;
#pragma unroll 1
        for (int key = own_lane(); __any_sync(ALL_LANES, key < seen); key += 32) {
            if (key < seen) {
                const double score_here = score(b, h, query, key);
                const double raised = fmax(maximum, score_here);
                const double origin = raised == lowest ? 0.0 : raised;
                sum = sum * exp(maximum - origin) + exp(score_here - origin);
                maximum = raised;
            }
            if (__any_sync(ALL_LANES, sum != sum)) return not_a_number();
        }
        double highest = maximum;
#pragma unroll 1
        for (int bit = 1; bit < 32; bit *= 2) highest = fmax(highest, __shfl_xor_sync(ALL_LANES, highest, bit));
        if (highest == lowest) return lowest;
        sum *= exp(maximum - highest);
#pragma unroll 1
        for (int bit = 1; bit < 32; bit *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, bit);
        return highest + log(sum);
    }

    /// Column d of a row of O, of each lane its own; none for HS_V and beyond. `log_sum`: the row's.
    __device__ __forceinline__ double column(int b, int h, int query, double log_sum, int d) const
    {
        if (log_sum != log_sum) return log_sum;
        const int seen = scores.keys_seen(query);
        double result = 0.0;
#pragma unroll 1
        for (int first = 0; first < seen; first += 32) {
            const int key = first + own_lane();
            double weight = 0.0;
            if (key < seen && log_sum > minus_infinity()) weight = exp(score(b, h, query, key) - log_sum);
#pragma unroll 1
            for (int j = 0; j < min(32, seen - first); ++j) {
                const double weight_there = __shfl_sync(ALL_LANES, weight, j);
                if (d >= HS_V) continue;
                result = fma(weight_there, exactly(exact_row(v, b, h / group, first + j)[d * v.stride[3]]), result);
            }
            if (__all_sync(ALL_LANES, result != result || d >= HS_V)) break;
        }
        return result;
    }

    /// Computes a row of O and its log-sum-exp again if it is not finite. All of the row has been written.
    __device__ __forceinline__ void mend(const View<T, 4>& out, float* log_sums, int b, int h, int query) const
    {
        T* const row = exact_row(out, b, h, query);
        if (row_is_finite<HS_V>(row, out.stride[3])) return;
        const double log_sum = log_sum_exp(b, h, query);
        __syncwarp();  // all of the warp have looked
        if (own_lane() == 0)
            log_sums[(static_cast<long long>(b) * NH + h) * scores.T + query] = static_cast<float>(log_sum);
#pragma unroll 1
        for (int d = own_lane(); __any_sync(ALL_LANES, d < HS_V); d += 32) {
            const double result = column(b, h, query, log_sum, d);
            if (d < HS_V) row[d * out.stride[3]] = from_float<T>(static_cast<float>(result));
        }
    }
};

/// What the backward pass computes, from the log-sum-exp and the output that the forward pass left. All functions are
/// called by whole warps. Rows of V, O and their gradients have HS_V elements.
template <int HS, bool CAUSAL, class T, int HS_V = HS>
struct ExactGradients {
    static constexpr int WIDEST = HS > HS_V ? HS : HS_V;

    View<const T, 4> q;
    View<const T, 4> k;
    View<const T, 4> v;
    View<const T, 4> out;
    View<const T, 4> dout;
    const float* log_sums;
    int NH;
    int group;  // heads that share a key head
    Scores<CAUSAL> scores;

    /// P and dS of a visible pair.
    __device__ __forceinline__ void pair(int b, int h, int query, int key, double& p, double& ds) const
    {
        const T* const own_dout = exact_row(dout, b, h, query);
        const double score = scores.scale * exact_dot<HS>(exact_row(q, b, h, query), q.stride[3],
                                                          exact_row(k, b, h / group, key), k.stride[3]);
        const double log_sum = log_sums[(static_cast<long long>(b) * NH + h) * scores.T + query];
        p = log_sum == minus_infinity() ? 0.0 : exp(score - log_sum);
        if (p > 1.0) p = 1.0;  // the log-sum-exp is rounded
        const double dp = exact_dot<HS_V>(own_dout, dout.stride[3], exact_row(v, b, h / group, key), v.stride[3]);
        ds = p * (dp - exact_dot<HS_V>(own_dout, dout.stride[3], exact_row(out, b, h, query), out.stride[3]));
    }

    /// Column d of a row of dQ, of each lane its own; none for HS and beyond.
    __device__ __forceinline__ double query_column(int b, int h, int query, int d) const
    {
        const int seen = scores.keys_seen(query);
        double result = 0.0;
#pragma unroll 1
        for (int first = 0; first < seen; first += 32) {
            double p = 0.0;
            double ds = 0.0;
            if (first + own_lane() < seen) pair(b, h, query, first + own_lane(), p, ds);
#pragma unroll 1
            for (int j = 0; j < min(32, seen - first); ++j) {
                const double ds_there = __shfl_sync(ALL_LANES, ds, j);
                if (d >= HS) continue;
                result = fma(ds_there, exactly(exact_row(k, b, h / group, first + j)[d * k.stride[3]]), result);
            }
            if (__all_sync(ALL_LANES, result != result || d >= HS)) break;
        }
        return result * scores.scale;
    }

    /// Computes a row of dQ again if it is not finite. All of the row has been written.
    template <class Result>
    __device__ __forceinline__ void mend_query(const View<Result, 4>& dq, int b, int h, int query) const
    {
        Result* const row = exact_row(dq, b, h, query);
        if (row_is_finite<HS>(row, dq.stride[3])) return;
        __syncwarp();  // all of the warp have looked
#pragma unroll 1
        for (int d = own_lane(); __any_sync(ALL_LANES, d < HS); d += 32) {
            const double result = query_column(b, h, query, d);
            if (d < HS) row[d * dq.stride[3]] = from_float<Result>(static_cast<float>(result));
        }
    }

    /// Column d of a row of dK and of dV, of each lane its own; none beyond the row's end.
    __device__ __forceinline__ void key_column(int b, int h_kv, int key, int d, double& of_dk, double& of_dv) const
    {
        of_dk = of_dv = 0.0;
#pragma unroll 1
        for (int h = h_kv * group; h < (h_kv + 1) * group; ++h)
#pragma unroll 1
            for (int first = scores.first_query(key); first < scores.T; first += 32) {
                double p = 0.0;
                double ds = 0.0;
                if (first + own_lane() < scores.T) pair(b, h, first + own_lane(), key, p, ds);
#pragma unroll 1
                for (int i = 0; i < min(32, scores.T - first); ++i) {
                    const double p_there = __shfl_sync(ALL_LANES, p, i);
                    const double ds_there = __shfl_sync(ALL_LANES, ds, i);
                    if (d >= WIDEST) continue;
                    if (HS == WIDEST || d < HS)
                        of_dk = fma(ds_there, exactly(exact_row(q, b, h, first + i)[d * q.stride[3]]), of_dk);
                    if (HS_V == WIDEST || d < HS_V)
                        of_dv = fma(p_there, exactly(exact_row(dout, b, h, first + i)[d * dout.stride[3]]), of_dv);
                }
                if (__all_sync(ALL_LANES, (of_dk != of_dk && of_dv != of_dv) || d >= WIDEST)) return;
            }
        of_dk *= scores.scale;
    }

    /// Computes a row of dK or dV again if it is not finite. All of the row has been written.
    template <bool IS_DK>
    __device__ __forceinline__ void mend_key(const View<T, 4>& gradient, int b, int h_kv, int key) const
    {
        constexpr int COLS = IS_DK ? HS : HS_V;
        T* const row = exact_row(gradient, b, h_kv, key);
        if (row_is_finite<COLS>(row, gradient.stride[3])) return;
        __syncwarp();  // all of the warp have looked
#pragma unroll 1
        for (int d = own_lane(); __any_sync(ALL_LANES, d < COLS); d += 32) {
            double of_dk;
            double of_dv;
            key_column(b, h_kv, key, d, of_dk, of_dv);
            if (d < COLS) row[d * gradient.stride[3]] = from_float<T>(static_cast<float>(IS_DK ? of_dk : of_dv));
        }
    }
};
