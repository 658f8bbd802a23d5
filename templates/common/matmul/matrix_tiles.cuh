// Tiles of strided matrices on their way into shared memory and out of it, for products on tensor cores.
#pragma once

#include "common/ptx/async_copy.cuh"
#include "common/matmul/triangle.cuh"
#include "common/ptx/mma.cuh"
#include "common/tile/row_access.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// An operand, tile by tile: LENGTH rows (or columns) of it, DEPTH summands, stored as they lie in memory. ALONG_K:
/// neighbours in memory are neighbours along K. A thread copies one chunk of 16 bytes of every STEP-th line of a tile.
template <class T, class Tile, int LENGTH, int DEPTH, bool ALONG_K, int THREADS>
struct OperandStream {
    static constexpr int LINES = ALONG_K ? LENGTH : DEPTH;
    static constexpr int BYTES = Tile::bytes(LINES);
    static constexpr int CHUNK = 16 / int(sizeof(T));
    static constexpr int STEP = THREADS / Tile::CHUNKS;
    static constexpr int COPIES = (LINES + STEP - 1) / STEP;
    static_assert(THREADS % Tile::CHUNKS == 0, "threads share out whole lines");

    const T* next;   // this thread's first chunk of the tile that is fetched next
    const T* start;  // the same of the first summands
    long long line_stride;
    long long col_stride;
    int first_line = threadIdx.x / Tile::CHUNKS;
    int chunk = threadIdx.x % Tile::CHUNKS;
    bool vectors;

    /// The operand's first tile is at `from`; x counts along M or N.
    __device__ __forceinline__ OperandStream(const T* from, long long x_stride, long long k_stride, bool vectors_)
        : line_stride(ALONG_K ? x_stride : k_stride), col_stride(ALONG_K ? k_stride : x_stride), vectors(vectors_)
    {
        start = next = from + first_line * line_stride + chunk * CHUNK * col_stride;
    }

    /// Goes back to the first summands, `lengths` tiles further along M or N.
    __device__ __forceinline__ void rewind(int lengths)
    {
        next = start += lengths * LENGTH * (ALONG_K ? line_stride : col_stride);
    }

    /// Starts to copy the tile at the current place, of which x_left times k_left elements exist; moves one tile on.
    __device__ __forceinline__ void fetch(unsigned char* tile, int x_left, int k_left)
    {
        if (vectors && x_left >= LENGTH && k_left >= DEPTH) {
            const SharedAddress to = shared_address(tile);
            const T* source = next;
#pragma unroll
            for (int c = 0; c < COPIES; ++c, source += STEP * line_stride) {
                const int line = first_line + c * STEP;
                if (LINES % STEP != 0 && line >= LINES) break;
                copy_async(to + Tile::offset(line, chunk), source, true);
            }
        } else {
            fetch_part(tile, ALONG_K ? x_left : k_left, (ALONG_K ? k_left : x_left) - chunk * CHUNK);
        }
        next += DEPTH * (ALONG_K ? col_stride : line_stride);
    }

    /// The same at an edge, or without vectors. What does not exist becomes 0, so that whatever lies in memory there
    /// cannot leak into products.
    __device__ __forceinline__ void fetch_part(unsigned char* tile, int lines, int cols)
    {
        const T* source = next;
#pragma unroll 1
        for (int line = first_line; line < LINES; line += STEP, source += STEP * line_stride) {
            Vector<T, CHUNK> part;
            if (vectors && line < lines && cols >= CHUNK) {
                part = *reinterpret_cast<const Vector<T, CHUNK>*>(source);
            } else {
#pragma unroll
                for (int e = 0; e < CHUNK; ++e)
                    part.at[e] = line < lines && e < cols ? source[e * col_stride] : from_float<T>(0.0f);
            }
            *reinterpret_cast<Vector<T, CHUNK>*>(tile + Tile::offset(line, chunk)) = part;
        }
    }
};

/// Two neighbouring elements, rounded to T.
template <class T>
__device__ __forceinline__ Vector<T, 2> two_elements(float low, float high)
{
    if constexpr (sizeof(T) == 4) {
        return {low, high};
    } else {
        const uint32_t both = pack<T>(low, high);
        return *reinterpret_cast<const Vector<T, 2>*>(&both);
    }
}

/// A warp's part of C in shared memory. What 16 lanes write together, four rows of 8 floats, lies in all banks.
template <class T, int COLS, bool SWIZZLE>
struct ResultTile : SharedTile<COLS, SWIZZLE, sizeof(T)> {
    using Base = SharedTile<COLS, SWIZZLE, sizeof(T)>;

    static __device__ __forceinline__ int offset(int row, int chunk)
    {
        if constexpr (SWIZZLE && sizeof(T) == 4 && Base::CHUNKS % 8 == 0)
            return row * Base::ROW_BYTES + (chunk ^ row % 4 * 2) * 16;
        return Base::offset(row, chunk);
    }
};

/// Where a warp's part of C goes, M_TILES by N_TILES pieces of 16 by 8 as mma leaves them: straight to memory, or
/// (SHARED) by way of shared memory, so that neighbouring threads write neighbouring chunks of 16 bytes.
template <class T, int M_TILES, int N_TILES, Triangle TRIANGLE, Access STORES, bool SHARED, bool SWIZZLE>
struct ResultWriter {
    static constexpr int ROWS = 16 * M_TILES;
    static constexpr int COLS = 8 * N_TILES;
    using Tile = ResultTile<T, COLS, SWIZZLE>;
    static constexpr int BYTES = SHARED ? Tile::bytes(ROWS) : 0;  // of shared memory, for a warp
    static constexpr int WIDTH = SHARED ? Tile::CHUNK_COLS : 2;   // neighbouring elements that are written at once
    static constexpr int ROWS_AT_ONCE = SHARED ? 32 / Tile::CHUNKS : 8;

    T* matrix;
    long long row_stride;
    long long col_stride;
    int M;
    int N;
    float alpha;
    bool vectors;

    __device__ __forceinline__ ResultWriter(const View<T, 4>& c, int batch, int head, int M_, int N_, float alpha_)
        : matrix(matrix_of(c, batch, head)), row_stride(c.stride[2]), col_stride(c.stride[3]), M(M_), N(N_),
          alpha(alpha_), vectors(allows_vectors<WIDTH>(c))
    {
    }

    /// Writes the part whose first element is (row, col) of C.
    __device__ __forceinline__ void write(float (&acc)[M_TILES][N_TILES][4], int row, int col,
                                          unsigned char* warp_tile) const
    {
        finish(acc, row, col);
        const bool whole = vectors && row + ROWS <= M && col + COLS <= N;
        T* const first = matrix + row * row_stride + col * col_stride;
        if constexpr (SHARED) {
            place(acc, warp_tile);
            __syncwarp();
            if (whole)
                write_lines(first, [&](int r) { return line_part(warp_tile, r); });
            else
                write_lines_at_an_edge(first, M - row, N - col, warp_tile);
            __syncwarp();
        } else if (whole) {
            write_pairs(first, acc);
        } else {
            write_pairs_at_an_edge(acc, row, col);
        }
    }

    /// The same where all of it is 0.
    __device__ __forceinline__ void write_zeros(int row, int col) const
    {
        T* const first = matrix + row * row_stride + col * col_stride;
        const bool whole = vectors && row + ROWS <= M && col + COLS <= N;
        if (SHARED && whole) {
            write_lines(first, [](int) { return zeros(); });
        } else {
            const float acc[M_TILES][N_TILES][4] = {};
            if (!SHARED && whole)
                write_pairs(first, acc);
            else
                write_pairs_at_an_edge(acc, row, col);
        }
    }

    /// alpha, and zeros where C is not wanted. This thread has elements (lane / 4, 2 * (lane % 4)) and the next one of
    /// each piece of 8 by 8.
    __device__ __forceinline__ void finish(float (&acc)[M_TILES][N_TILES][4], int row, int col) const
    {
        const int lane = threadIdx.x % 32;
        const bool cut = !wanted<TRIANGLE>(row, col + COLS - 1, M, N);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) acc[m][n][i] *= alpha;
        if (!cut) return;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int n = 0; n < N_TILES; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int own_row = row + 16 * m + i / 2 * 8 + lane / 4;
                    const int own_col = col + 8 * n + i % 2 + lane % 4 * 2;
                    if (!wanted<TRIANGLE>(own_row, own_col, M, N)) acc[m][n][i] = 0.0f;
                }
    }

    __device__ __forceinline__ void place(const float (&acc)[M_TILES][N_TILES][4], unsigned char* warp_tile) const
    {
        const int lane = threadIdx.x % 32;
        constexpr int PAIRS = Tile::CHUNK_COLS / 2;  // in a chunk
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int n = 0; n < N_TILES; ++n) {
                    const int chunk = 4 / PAIRS * n + lane % 4 / PAIRS;
                    const int at = Tile::offset(16 * m + 8 * half + lane / 4, chunk) + lane % PAIRS * 2 * sizeof(T);
                    *reinterpret_cast<Vector<T, 2>*>(warp_tile + at) =
                        two_elements<T>(acc[m][n][2 * half], acc[m][n][2 * half + 1]);
                }
    }

    /// This thread's chunk of row r and of the ROWS_AT_ONCE - 1 rows after it, which other threads have.
    static __device__ __forceinline__ Vector<T, WIDTH> line_part(const unsigned char* warp_tile, int r)
    {
        const int lane = threadIdx.x % 32;
        const int at = Tile::offset(r + lane / Tile::CHUNKS, lane % Tile::CHUNKS);
        return *reinterpret_cast<const Vector<T, WIDTH>*>(warp_tile + at);
    }

    template <class Part>
    __device__ __forceinline__ void write_lines(T* first, const Part& part) const
    {
        const int lane = threadIdx.x % 32;
        T* to = first + lane / Tile::CHUNKS * row_stride + lane % Tile::CHUNKS * WIDTH;
#pragma unroll
        for (int r = 0; r < ROWS; r += ROWS_AT_ONCE, to += ROWS_AT_ONCE * row_stride) write_vector<STORES>(to, part(r));
    }

    __device__ __forceinline__ void write_lines_at_an_edge(T* first, int rows, int cols,
                                                           const unsigned char* warp_tile) const
    {
        const int lane = threadIdx.x % 32;
        const int from = lane % Tile::CHUNKS * WIDTH;
#pragma unroll 1
        for (int r = lane / Tile::CHUNKS; r < min(ROWS, rows); r += ROWS_AT_ONCE) {
            const auto part = line_part(warp_tile, r - lane / Tile::CHUNKS);
            T* const to = first + r * row_stride + from * col_stride;
            if (vectors && from + WIDTH <= cols) {
                write_vector<STORES>(to, part);
            } else {
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
                    if (from + e < cols) to[e * col_stride] = part.at[e];
            }
        }
    }

    __device__ __forceinline__ void write_pairs(T* first, const float (&acc)[M_TILES][N_TILES][4]) const
    {
        const int lane = threadIdx.x % 32;
        T* to = first + lane / 4 * row_stride + lane % 4 * 2;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half, to += ROWS_AT_ONCE * row_stride)
#pragma unroll
                for (int n = 0; n < N_TILES; ++n)
                    write_vector<STORES>(to + 8 * n, two_elements<T>(acc[m][n][2 * half], acc[m][n][2 * half + 1]));
    }

    __device__ __forceinline__ void write_pairs_at_an_edge(const float (&acc)[M_TILES][N_TILES][4], int row,
                                                           int col) const
    {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int own_row = row + 16 * m + i / 2 * 8 + lane / 4;
#pragma unroll
                for (int n = 0; n < N_TILES; ++n) {
                    const int own_col = col + 8 * n + lane % 4 * 2 + i % 2;
                    if (own_row < M && own_col < N)
                        matrix[own_row * row_stride + own_col * col_stride] = from_float<T>(acc[m][n][i]);
                }
            }
    }

    static __device__ __forceinline__ Vector<T, WIDTH> zeros()
    {
        Vector<T, WIDTH> part;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) part.at[e] = from_float<T>(0.0f);
        return part;
    }
};
