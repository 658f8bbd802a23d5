// Products of tiles in shared memory by fp32 FMAs: where threads stand over a tile, and the sums that each of them keeps.
#pragma once

#include "common/types.cuh"

/// Where a thread stands in a block whose warps each own consecutive rows of a tile: LANES_N lanes lie across the
/// columns, 32 / LANES_N down the rows. Lanes 0 and 1 are two rows of the same column: shared memory serves a 16-byte
/// read in groups of lanes, and two groups at once if lanes come in pairs that read the same address.
template <int LANES_N_>
struct Lanes {
    static constexpr int LANES_N = LANES_N_;
    static constexpr int LANES_M = 32 / LANES_N;
    static constexpr int FIRST_BIT = LANES_M > 1 ? 2 : 1;   // the lane number's bits from this one
    static constexpr int END_BIT = FIRST_BIT * LANES_N;     // up to this one count columns

    int warp = threadIdx.x / 32;
    int m = threadIdx.x % FIRST_BIT + threadIdx.x % 32 / END_BIT * FIRST_BIT;
    int n = threadIdx.x % END_BIT / FIRST_BIT;
};

/// Largest power of two that divides n, at most `limit`.
__host__ __device__ constexpr int power_of_two_in(int n, int limit)
{
    int power = 1;
    while (power < limit && n % (2 * power) == 0) power *= 2;
    return power;
}

/// THREADS threads as a grid of ROWS_ rows over a tile. A warp covers 4 rows by 8 columns of the grid where it can.
/// Shared memory serves a 16-byte read of a warp in half the time if, in each half of the warp, lanes that differ in
/// bit 0 alone (or in bit 1 alone) read the same address. So columns take lane bits 0, 2 and 4, rows bits 1 and 3.
template <int THREADS, int ROWS_>
struct ThreadGrid {
    static constexpr int ROWS = ROWS_;
    static constexpr int COLS = THREADS / ROWS;
    static constexpr int WARP_COLS = power_of_two_in(COLS, 32 / power_of_two_in(ROWS, 4));
    static constexpr int WARP_ROWS = 32 / WARP_COLS;
    static constexpr bool INTERLEAVED = WARP_COLS == 8;
    static_assert(THREADS % ROWS == 0 && THREADS % 32 == 0, "whole rows of whole warps");
    static_assert(COLS % WARP_COLS == 0 && ROWS % WARP_ROWS == 0, "warps tile the grid");

    int row;
    int col;

    __device__ __forceinline__ ThreadGrid()
    {
        constexpr int WARPS_ACROSS = COLS / WARP_COLS;
        const int warp = threadIdx.x / 32;
        const int lane = threadIdx.x % 32;
        const int lane_row = INTERLEAVED ? (lane >> 1 & 1) | (lane >> 2 & 2) : lane / WARP_COLS;
        const int lane_col = INTERLEAVED ? (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4) : lane % WARP_COLS;
        row = warp / WARPS_ACROSS * WARP_ROWS + lane_row;
        col = warp % WARPS_ACROSS * WARP_COLS + lane_col;
    }
};

/// acc[i][j] += sum over k < K of a(i, k) * b(j, k): rows times rows (Q times K transposed). `a` and `b` point at the
/// thread's first row; its next rows are A_STEP and B_STEP floats on. VEC values of k are read at once.
template <int M, int N, int K, int A_STEP, int B_STEP, int VEC, int UNROLL>
__device__ __forceinline__ void multiply_nt(float (&acc)[M][N], const float* a, const float* b)
{
#pragma unroll UNROLL
    for (int k = 0; k < K; k += VEC) {
        float x[M][VEC];
#pragma unroll
        for (int i = 0; i < M; ++i) load<VEC>(a + i * A_STEP + k, x[i]);
#pragma unroll
        for (int j = 0; j < N; ++j) {
            float y[VEC];
            load<VEC>(b + j * B_STEP + k, y);
#pragma unroll
            for (int v = 0; v < VEC; ++v)
#pragma unroll
                for (int i = 0; i < M; ++i) acc[i][j] += x[i][v] * y[v];
        }
    }
}

/// acc[i][j] += sum over k < K of a(i, k) * b(k, j): rows times columns (P times V). `a` points at the thread's first
/// row, its next rows are A_STEP floats on; `b` points at its first column in row 0, rows are B_ROW floats apart. The
/// thread's columns come in groups of WIDTH neighbours, B_STEP floats apart.
template <int M, int N, int K, int A_STEP, int B_ROW, int B_STEP, int WIDTH, int VEC, int UNROLL>
__device__ __forceinline__ void multiply_nn(float (&acc)[M][N], const float* a, const float* b)
{
#pragma unroll UNROLL
    for (int k = 0; k < K; k += VEC) {
        float x[M][VEC];
#pragma unroll
        for (int i = 0; i < M; ++i) load<VEC>(a + i * A_STEP + k, x[i]);
#pragma unroll
        for (int v = 0; v < VEC; ++v)
#pragma unroll
            for (int j = 0; j < N; j += WIDTH) {
                float y[WIDTH];
                load<WIDTH>(b + (k + v) * B_ROW + j / WIDTH * B_STEP, y);
#pragma unroll
                for (int w = 0; w < WIDTH; ++w)
#pragma unroll
                    for (int i = 0; i < M; ++i) acc[i][j + w] += x[i][v] * y[w];
            }
    }
}

/// acc[i][j] += sum over k < K of a(k, i) * b(k, j): columns times columns (P transposed times dO). `a` and `b` point
/// at the thread's first column in row 0; rows are A_ROW and B_ROW floats apart. The thread's columns come in groups
/// of 4 (of `a`) and WIDTH (of `b`) neighbours, A_STEP and B_STEP floats apart.
template <int M, int N, int K, int A_ROW, int A_STEP, int B_ROW, int B_STEP, int WIDTH, int UNROLL>
__device__ __forceinline__ void multiply_tn(float (&acc)[M][N], const float* a, const float* b)
{
#pragma unroll UNROLL
    for (int k = 0; k < K; ++k) {
        float x[M / 4][4];
#pragma unroll
        for (int i = 0; i < M / 4; ++i) load<4>(a + k * A_ROW + i * A_STEP, x[i]);
#pragma unroll
        for (int j = 0; j < N; j += WIDTH) {
            float y[WIDTH];
            load<WIDTH>(b + k * B_ROW + j / WIDTH * B_STEP, y);
#pragma unroll
            for (int w = 0; w < WIDTH; ++w)
#pragma unroll
                for (int i = 0; i < M; ++i) acc[i][j + w] += x[i / 4][i % 4] * y[w];
        }
    }
}
