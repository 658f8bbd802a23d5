// Gradients that come out of a fast kernel not finite, on their way to be computed again: the kernel marks them, sixteen
// rows at a time, by a NaN in their first element, and a kernel that comes after it looks at the marks. So accumulators need
// share no register with code that is hardly ever executed.
#pragma once

#include "common/attention/exact.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/slab_copy.cuh"

/// A warp's mark: NaN in the first element of its sixteen rows where any of its numbers is not finite.
template <int REGISTERS>
__device__ __forceinline__ void mark_not_finite(float (&x)[REGISTERS])
{
    float zero = 0.0f;
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) zero = fmaf(x[i], 0.0f, zero);
    if (__any_sync(ALL_LANES, zero != 0.0f) && threadIdx.x % 32 == 0) x[0] = not_a_number();
}

/// The same of a transposed gradient, whose rows are the accumulators' columns: each sixteen of them for themselves.
template <int REGISTERS>
__device__ __forceinline__ void mark_columns_not_finite(float (&x)[REGISTERS])
{
#pragma unroll
    for (int i = 0; i < REGISTERS; i += 8) mark_not_finite(reinterpret_cast<float (&)[8]>(x[i]));
}

/// A warp group's accumulators, 64 rows of a gradient, scaled, by way of 64 rows of a tile from `row` on to the tensor of
/// `map`, from `at` on if that `exists`. The group's barrier: number 1 + `group`. The copy goes on.
template <class Tile, class T, int REGISTERS>
__device__ __forceinline__ void store_marked(float (&x)[REGISTERS], float factor, const TensorMap& map, const int (&at)[4],
                                             bool exists, SharedAddress tile, int row, int group)
{
    mark_not_finite(x);
    place_accumulators<Tile, T>(tile, row, x, factor);
    fence_async_shared();
    named_barrier<128>(1 + group);
    if (threadIdx.x % 128 != 0 || !exists) return;
    store_slabs<Tile>(map, {0, at[1], at[2], at[3]}, tile, row);
    bulk_commit();
}

/// The first of sixteen rows of a matrix, by their number among those of all matrices.
__device__ __forceinline__ RowPlace sixteen_rows(int number, int heads, int rows)
{
    const int strips = (rows + 15) / 16, matrix = number / strips;
    return {matrix / heads, matrix % heads, (number - matrix * strips) * 16};
}

/// What stands where sixteen rows of dK and of dV, from `first` on, have their marks. As it was loaded: looked at where it is
/// wanted, it is waited for there.
template <class T>
struct KeyMarks {
    T of_dk = from_float<T>(0.0f), of_dv = from_float<T>(0.0f);

    __device__ __forceinline__ void load(const View<T, 4>& dk, const View<T, 4>& dv, const RowPlace& first)
    {
        of_dk = row_of(dk, first)[0];
        of_dv = row_of(dv, first)[0];
    }

    __device__ __forceinline__ bool any() const { return !is_finite(to_float(of_dk)) || !is_finite(to_float(of_dv)); }
};

/// The same where several warps have columns of these rows, and each its mark in the first of its own, a multiple of 8 among
/// HS and HS_V: a lane looks at one of them.
template <class T, int HS, int HS_V>
struct SharedKeyMarks {
    static_assert(HS <= 256 && HS_V <= 256, "a lane for each eight columns");
    KeyMarks<T> marks;

    __device__ __forceinline__ void load(const View<T, 4>& dk, const View<T, 4>& dv, const RowPlace& first)
    {
        const int col = threadIdx.x % 32 * 8;
        if (col < HS) marks.of_dk = row_of(dk, first)[col * dk.stride[3]];
        if (col < HS_V) marks.of_dv = row_of(dv, first)[col * dv.stride[3]];
    }

    __device__ __forceinline__ bool any() const { return __any_sync(ALL_LANES, marks.any()); }
};

/// Computes sixteen rows of dK and dV again, from `first` on, where they are not finite. For a warp, all of which have looked
/// for marks.
template <int HS, bool CAUSAL, class T, int HS_V>
__device__ __forceinline__ void mend_keys(const ExactGradients<HS, CAUSAL, T, HS_V>& exact, const View<T, 4>& dk,
                                          const View<T, 4>& dv, const RowPlace& first)
{
#pragma unroll 1
    for (int key = first.t; key < min(first.t + 16, exact.scores.T_kv); ++key) {
        exact.template mend_key<true>(dk, first.b, first.h, key);
        exact.template mend_key<false>(dv, first.b, first.h, key);
    }
}

/// Looks for the marks of sixteen rows of dQ, in the first of each COLS columns, and computes marked ones again.
template <int COLS = 1 << 20, int HS, bool CAUSAL, class T, int HS_V>
__device__ __forceinline__ void mend_marked_queries(const ExactGradients<HS, CAUSAL, T, HS_V>& exact, const View<T, 4>& dq,
                                                    const RowPlace& first)
{
    bool right = is_finite(to_float(row_of(dq, first)[0]));
#pragma unroll
    for (int col = COLS; col < HS; col += COLS)
        right = right && is_finite(to_float(row_of(dq, first)[col * dq.stride[3]]));
    __syncwarp();
    if (right) return;
#pragma unroll 1
    for (int query = first.t; query < min(first.t + 16, exact.scores.T); ++query)
        exact.mend_query(dq, first.b, first.h, query);
}
