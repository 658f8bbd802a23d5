// Tiles on their way to shared memory as floats, for kernels that multiply with fp32 FMAs.
#pragma once

#include "common/types.cuh"

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
/// whatever lies in memory beyond them cannot leak into products; so do columns from `cols` on, which are whole vectors
/// where `vectors` are read. Called by all THREADS threads; no barrier inside.
template <int ROWS, int COLS, int STRIDE, int VEC, int THREADS, class T>
__device__ __forceinline__ void stage(float* tile, const T* from, long long row_stride, long long col_stride, int rows,
                                      bool vectors, int cols = COLS)
{
    constexpr int CHUNKS = COLS / VEC;
    const bool whole = cols == COLS;  // known to the compiler where nothing else is asked for
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
            if (row < rows && (whole || col < cols)) load<VEC>(source, x);
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
            if (row < rows && (whole || col < cols)) load<VEC>(from + row * row_stride + col, x);
            store_floats<STRIDE>(tile + row * STRIDE + col, x);
        }
    } else {
#pragma unroll 1
        for (int element = threadIdx.x; element < ROWS * COLS; element += THREADS) {
            const int row = element / COLS;
            const int col = element % COLS;
            const bool exists = row < rows && (whole || col < cols);
            tile[row * STRIDE + col] = exists ? to_float(from[row * row_stride + col * col_stride]) : 0.0f;
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
