// The end of dQ's sums in device memory.
#pragma once

#include "common/attention/exact.cuh"
#include "common/tile/rows.cuh"
#include "common/tile/rows_anywhere.cuh"
#include "common/types.cuh"
#include "common/warp/fragments.cuh"

/// Scales and rounds 16 rows by 32 columns of dQ, from row `first` and column `col` on, for a warp; computes again what is
/// not finite. `sums`: theirs, of each 8 columns the lane's four.
template <int HS, bool CAUSAL, class T, int HS_V>
__device__ __forceinline__ void round_sums(const float4 (&sums)[4], const View<T, 4>& dq,
                                           const ExactGradients<HS, CAUSAL, T, HS_V>& exact, const RowPlace& first, int col)
{
    const int lane = threadIdx.x % 32;
    const float scale = exact.scores.scale;
    uint32_t pairs[2][4];  // of the upper and lower 8 rows, of each 8 columns
    float zero[2] = {};    // 0 times these rows
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float4 x = sums[i];
        pairs[0][i] = pack<T>(x.x * scale, x.y * scale);
        pairs[1][i] = pack<T>(x.z * scale, x.w * scale);
        zero[0] = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, zero[0]));
        zero[1] = fmaf(x.z, 0.0f, fmaf(x.w, 0.0f, zero[1]));
    }
    const bool vectors = allows_vectors<8>(dq);
    const int own_col = col + lane % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if constexpr (HS % 8 != 0) {
            const RowPlace own = {first.b, first.h, first.t + 8 * half + lane / 4};
            write_pairs<HS>(pairs[half], row_of(dq, own), dq.stride[3], col, own.t < exact.scores.T);
            continue;
        }
        transpose_quad(pairs[half]);
        const RowPlace own = {first.b, first.h, first.t + 8 * half + lane / 4};
        if (own.t >= exact.scores.T || own_col >= HS) continue;
        const uint32_t(&x)[4] = pairs[half];
        T* const to = row_of(dq, own) + own_col * dq.stride[3];
        if (vectors) {
            __stwb(reinterpret_cast<uint4*>(to), make_uint4(x[0], x[1], x[2], x[3]));  // never taken apart, as `=` is
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) to[e * dq.stride[3]] = half_of<T>(x[e / 2], e % 2);
        }
    }

    if (__all_sync(ALL_LANES, zero[0] == 0.0f && zero[1] == 0.0f)) return;
    __syncwarp();  // the rows are written
#pragma unroll 1
    for (int n = 0; n < min(16, exact.scores.T - first.t); ++n) {
        if (__all_sync(ALL_LANES, lane / 4 != n % 8 || (n < 8 ? zero[0] : zero[1]) == 0.0f)) continue;
        const double right = exact.query_column(first.b, first.h, first.t + n, col + lane);
        if (col + lane < HS)
            row_of(dq, RowPlace{first.b, first.h, first.t + n})[(col + lane) * dq.stride[3]] =
                from_float<T>(static_cast<float>(right));
    }
}

/// The same of PARTS times 32 columns, of those that there are. `Sums`: AccumulatorSums; `sums`: of the tile in which row
/// `row` is the first. All are asked for before any is looked at: memory is what this waits for.
template <class Sums, int PARTS, int HS, bool CAUSAL, class T, int HS_V>
__device__ __forceinline__ void round_sums(const float* sums, int row, const View<T, 4>& dq,
                                           const ExactGradients<HS, CAUSAL, T, HS_V>& exact, const RowPlace& first, int col)
{
    float4 x[PARTS][4];
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
        if (col + 32 * part < HS)
#pragma unroll
            for (int i = 0; i < 4; ++i) x[part][i] = Sums::read(sums, row, col + 32 * part + 8 * i);
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
        if (col + 32 * part < HS) round_sums(x[part], dq, exact, first, col + 32 * part);
}

/// The same of a tile of dQ's sums for one of a block's WARPS warps: 16 rows by up to 64 columns, of all that blocks of x of the
/// grid share out. Sums of ROWS rows by COLS columns a tile, `rows` rows a matrix, `B` batches of them.
template <class Sums, int ROWS, int COLS, int WARPS, int HS, bool CAUSAL, class Element, int HS_V>
__device__ __forceinline__ void round_share(const float* dq_sums, const View<Element, 4>& dq,
                                            const ExactGradients<HS, CAUSAL, Element, HS_V>& exact, int B, int NH, int T, int rows)
{
    constexpr int ROUND_COLS = COLS < 64 ? COLS : 64, PARTS = (COLS + ROUND_COLS - 1) / ROUND_COLS;
    const int warp = threadIdx.x / 32;
    const RowPlace parts = first_row_of_block<WARPS>(NH, rows / 16 * PARTS);  // parts of a row, in place of rows
    const RowPlace first = {parts.b, parts.h, (parts.t + warp) / PARTS * 16};
    const int col = (parts.t + warp) % PARTS * ROUND_COLS, row = first.t % ROWS;
    if (first.b < B && first.t < T && col < HS) {
        const long long tile = (RowPlace{first.b, first.h, first.t - row}.number(NH, rows)) / ROWS;
        round_sums<Sums, ROUND_COLS / 32>(dq_sums + tile * Sums::TILE, row, dq, exact, first, col);
    }
}
