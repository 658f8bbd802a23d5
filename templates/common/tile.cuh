// Tiles in shared memory and products of tiles in registers, for kernels that multiply with fp32 FMAs.
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

/// Copies VEC neighbouring elements to shared memory as floats, by the widest stores that rows of STRIDE allow.
template <int STRIDE, int VEC>
__device__ __forceinline__ void store_floats(float* to, const float (&from)[VEC])
{
    constexpr int WIDTH = float_width(STRIDE) < VEC ? float_width(STRIDE) : VEC;
#pragma unroll
    for (int e = 0; e < VEC; e += WIDTH) {
        float part[WIDTH];
#pragma unroll
        for (int w = 0; w < WIDTH; ++w) part[w] = from[e + w];
        store<WIDTH>(to + e, part);
    }
}

/// Copies a ROWS x COLS tile to shared memory as floats (row stride STRIDE). Rows from `rows` on become 0, so that
/// whatever lies in memory beyond them cannot leak into products. Called by all THREADS threads; no barrier inside.
template <int ROWS, int COLS, int STRIDE, int VEC, int THREADS, class T>
__device__ __forceinline__ void stage(float* tile, const T* from, long long row_stride, long long col_stride, int rows,
                                      bool vectors)
{
    constexpr int CHUNKS = COLS / VEC;
    if (vectors && THREADS % CHUNKS == 0) {  // a thread stays in its columns and steps down the rows
        constexpr int STEP = THREADS >= CHUNKS ? THREADS / CHUNKS : 1;
        const int first = threadIdx.x / CHUNKS;
        const int col = threadIdx.x % CHUNKS * VEC;
        const T* source = from + first * row_stride + col;
#pragma unroll
        for (int base = 0; base < ROWS; base += STEP) {
            const int row = base + first;
            if (ROWS % STEP != 0 && row >= ROWS) break;
            float x[VEC] = {};
            if (row < rows) load<VEC>(source, x);
            store_floats<STRIDE>(tile + row * STRIDE + col, x);
            source += STEP * row_stride;
        }
    } else if (vectors) {
#pragma unroll
        for (int first = 0; first < ROWS * CHUNKS; first += THREADS) {
            const int chunk = first + threadIdx.x;
            if (ROWS * CHUNKS % THREADS != 0 && chunk >= ROWS * CHUNKS) break;
            const int row = chunk / CHUNKS;
            const int col = chunk % CHUNKS * VEC;
            float x[VEC] = {};
            if (row < rows) load<VEC>(from + row * row_stride + col, x);
            store_floats<STRIDE>(tile + row * STRIDE + col, x);
        }
    } else {
#pragma unroll 1
        for (int element = threadIdx.x; element < ROWS * COLS; element += THREADS) {
            const int row = element / COLS;
            const int col = element % COLS;
            tile[row * STRIDE + col] = row < rows ? to_float(from[row * row_stride + col * col_stride]) : 0.0f;
        }
    }
}

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

/// Writes N neighbouring elements of a tensor's row from column `col` on.
template <int N, class T>
__device__ __forceinline__ void store_row(T* row, long long col_stride, int col, const float (&from)[N], bool vectors)
{
    if (vectors) {
        store<N>(row + col, from);
    } else {
#pragma unroll
        for (int e = 0; e < N; ++e) row[(col + e) * col_stride] = from_float<T>(from[e]);
    }
}
