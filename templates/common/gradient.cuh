// What the attention gradients share: how a block's threads lie over a tile, products that reduce over rows, and
// accumulation into a gradient that several blocks add to.
#pragma once

#include "common/reduce.cuh"
#include "common/tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

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

/// A ROWS x COLS tile on its way to shared memory (as floats, row stride STRIDE). Does in two halves what `stage` does
/// in one go, so that memory answers while other work is done. No barrier inside.
template <int ROWS, int COLS, int STRIDE, int VEC, int THREADS, class T>
struct TileInFlight {
    static constexpr int ROW_CHUNKS = COLS / VEC;
    static constexpr int CHUNKS = ROWS * ROW_CHUNKS;
    static constexpr int PER_THREAD = (CHUNKS + THREADS - 1) / THREADS;

    Vector<T, VEC> chunks[PER_THREAD];
    const T* from;
    int rows;

    /// Starts reading the tile at `from_`; rows from `rows_` on are 0. Rows that vectors cannot read wait for `place`.
    __device__ __forceinline__ void fetch(const T* from_, long long row_stride, int rows_, bool vectors)
    {
        from = from_;
        rows = rows_;
        if (!vectors) return;
        if constexpr (THREADS % ROW_CHUNKS == 0) {  // a thread's chunks lie in one column
            const int row = threadIdx.x / ROW_CHUNKS;
            const T* next = from + row * row_stride + threadIdx.x % ROW_CHUNKS * VEC;
#pragma unroll
            for (int c = 0; c < PER_THREAD; ++c, next += THREADS / ROW_CHUNKS * row_stride)
                read(c, next, row + c * (THREADS / ROW_CHUNKS));
        } else {
#pragma unroll
            for (int c = 0; c < PER_THREAD; ++c) {
                const int chunk = c * THREADS + threadIdx.x;
                const int row = chunk / ROW_CHUNKS;
                read(c, from + row * row_stride + chunk % ROW_CHUNKS * VEC, row);
            }
        }
    }

    /// Writes the tile to shared memory.
    __device__ __forceinline__ void place(float* tile, long long row_stride, long long col_stride, bool vectors) const
    {
        if (!vectors) {
            stage<ROWS, COLS, STRIDE, VEC, THREADS>(tile, from, row_stride, col_stride, rows, false);
            return;
        }
#pragma unroll
        for (int c = 0; c < PER_THREAD; ++c) {
            const int chunk = c * THREADS + threadIdx.x;
            if (CHUNKS % THREADS != 0 && chunk >= CHUNKS) break;
            float* const to = tile + chunk / ROW_CHUNKS * STRIDE + chunk % ROW_CHUNKS * VEC;
#pragma unroll
            for (int e = 0; e < VEC; e += 4) {
                float part[4];
#pragma unroll
                for (int w = 0; w < 4; ++w) part[w] = to_float(chunks[c].at[e + w]);
                store<4>(to + e, part);
            }
        }
    }

private:
    __device__ __forceinline__ void read(int c, const T* at, int row)
    {
        chunks[c] = {};
        if (row < min(rows, ROWS)) chunks[c] = *reinterpret_cast<const Vector<T, VEC>*>(at);
    }
};

/// to[0..N) = N neighbouring elements of a tensor's row from column `col` on, as float.
template <int N, class T>
__device__ __forceinline__ void load_row(const T* row, long long col_stride, int col, float (&to)[N], bool vectors)
{
    if (vectors) {
        load<N>(row + col, to);
    } else {
#pragma unroll
        for (int e = 0; e < N; ++e) to[e] = to_float(row[(col + e) * col_stride]);
    }
}

/// A row of a (B, NH, T, HS) tensor.
struct RowPlace {
    int b;
    int h;
    int t;

    /// Its number among all rows, which is where (B, NH, T) tensors have its value.
    __device__ __forceinline__ long long number(int NH, int T) const
    {
        return (static_cast<long long>(b) * NH + h) * T + t;
    }
};

/// A block of some `rows` rows, BLOCK_ROWS each, of NH heads and any number of batches. x of the grid is their product,
/// since y and z end at 65535.
template <int BLOCK_ROWS>
__device__ __forceinline__ RowPlace first_row_of_block(int NH, int rows)
{
    const unsigned blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;  // of a head
    const unsigned matrix = blockIdx.x / blocks;
    return {static_cast<int>(matrix / NH), static_cast<int>(matrix % NH),
            static_cast<int>(blockIdx.x % blocks * BLOCK_ROWS)};
}

/// The row that LANES neighbouring threads of a block of THREADS work on.
template <int THREADS, int LANES>
__device__ __forceinline__ RowPlace row_of_thread(int NH, int rows)
{
    const RowPlace first = first_row_of_block<THREADS / LANES>(NH, rows);
    return {first.b, first.h, first.t + static_cast<int>(threadIdx.x) / LANES};
}

template <class T>
__device__ __forceinline__ T* row_of(const View<T, 4>& tensor, const RowPlace& place)
{
    return matrix_of(tensor, place.b, place.h) + place.t * tensor.stride[2];
}

/// One lane's share of the sum of x * y over a row of HS elements, of which LANES neighbouring lanes take VEC by turns.
template <int HS, int VEC, int LANES, class T>
__device__ __forceinline__ float dot_of_lane(const View<const T, 4>& x, const View<const T, 4>& y,
                                             const RowPlace& place, bool vectors)
{
    float sum = 0.0f;
    for (int col = threadIdx.x % LANES * VEC; col < HS; col += LANES * VEC) {
        float a[VEC];
        float b[VEC];
        load_row(row_of(x, place), x.stride[3], col, a, vectors);
        load_row(row_of(y, place), y.stride[3], col, b, vectors);
#pragma unroll
        for (int e = 0; e < VEC; ++e) sum += a[e] * b[e];
    }
    return sum;
}

/// The sum of x * y over a row of HS elements, by LANES neighbouring lanes; all of them get it. Every lane of the warp
/// takes part in the exchange, also those of which `exists` is false.
template <int HS, int VEC, int LANES, class T>
__device__ __forceinline__ float dot_of_rows(const View<const T, 4>& x, const View<const T, 4>& y, const RowPlace& place,
                                             bool exists)
{
    const bool vectors = allows_vectors<VEC>(x) && allows_vectors<VEC>(y);
    return reduce_lanes<Sum, 1, LANES>(exists ? dot_of_lane<HS, VEC, LANES>(x, y, place, vectors) : 0.0f);
}

/// Adds N neighbouring floats (1, 2 or 4) to a row from column `col` on, where other blocks add as well: their order is
/// left to chance. `vectors`: the row is contiguous and aligned to N floats.
template <int N>
__device__ __forceinline__ void add_to_row(float* row, long long col_stride, int col, const float (&x)[N], bool vectors)
{
#if (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900) || (defined(EMULATOR_ARCH) && EMULATOR_ARCH >= 900)
    if constexpr (N == 4) {
        if (vectors) {
            atomicAdd(reinterpret_cast<float4*>(row + col), make_float4(x[0], x[1], x[2], x[3]));
            return;
        }
    } else if constexpr (N == 2) {
        if (vectors) {
            atomicAdd(reinterpret_cast<float2*>(row + col), make_float2(x[0], x[1]));
            return;
        }
    }
#endif
    (void)vectors;
#pragma unroll
    for (int e = 0; e < N; ++e) atomicAdd(row + (col + e) * col_stride, x[e]);
}
