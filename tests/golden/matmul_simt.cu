// autotune: matmul/simt: register tiles over shared memory, fp32 arithmetic: any dtype, shape, layout and strides
// problem:       B=4 NH=12 M=1024 N=1024 K=64 dtype=fp16 layout=nt mask=none alpha=1.0 group=1 interleaved=none arithmetic=full
// configuration: BLOCK_M=128 BLOCK_N=64 BLOCK_K=16 M_TILE=8 N_TILE=8 STAGES=2 UNROLL=8 SMEM_PAD=4 VEC=4 MIN_BLOCKS=2 STORES=cached GRID_MAP=x=cols,y=rows,z=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          5296baea3b1c61dd

#include "common/matmul/exact_product.cuh"
#include "common/matmul/triangle.cuh"
#include "common/tile/row_access.cuh"
#include "common/tile/staged.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/warp/fma_products.cuh"

using element = __half;

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 64;
constexpr int BLOCK_K = 16;         // summands a step
constexpr int M_TILE = 8;           // rows a thread
constexpr int N_TILE = 8;           // columns a thread
constexpr int STAGES = 2;           // tiles of each operand in shared memory
constexpr int UNROLL = 8;           // steps of the inner product's loop
constexpr int VEC = 4;              // elements a read from device memory
constexpr int THREADS = 128;
constexpr bool A_ALONG_K = true;     // neighbours in memory are neighbours along K, not along M
constexpr bool B_ALONG_K = true;
constexpr Triangle TRIANGLE = Triangle::NONE;
constexpr Access STORES = Access::CACHED;

constexpr int A_ROW = BLOCK_M + 4;
constexpr int B_ROW = BLOCK_N + 4;
constexpr int WIDTH = 4;                    // neighbouring rows and columns of a thread

using Threads = ThreadGrid<THREADS, BLOCK_M / M_TILE>;

/// A tile of an operand on its way to shared memory, where it lies as BLOCK_K rows of ROW floats. Memory answers while
/// the tile before is multiplied.
template <int LENGTH, int ROW, bool ALONG_K>
struct OperandInFlight {
    static constexpr int LINE = (ALONG_K ? BLOCK_K : LENGTH) / VEC;  // chunks in a line of memory
    static constexpr int LINES = ALONG_K ? LENGTH : BLOCK_K;
    static constexpr int STEP = THREADS / LINE;                      // lines from one of a thread's chunks to the next
    static constexpr int CHUNKS = (LINES + STEP - 1) / STEP;

    Vector<element, VEC> chunks[CHUNKS];
    const element* next;
    long long line_stride;
    long long chunk_stride;
    int line = threadIdx.x / LINE;
    int at = threadIdx.x % LINE * VEC;  // along the line
    bool vectors;

    /// The operand's first tile is at `from`; x counts along M or N.
    __device__ __forceinline__ OperandInFlight(const element* from, long long x_stride, long long k_stride,
                                               bool vectors_)
        : line_stride(ALONG_K ? x_stride : k_stride), chunk_stride(ALONG_K ? k_stride : x_stride), vectors(vectors_)
    {
        next = from + line * line_stride + at * chunk_stride;
    }

    /// Starts reading the tile at the current place, of which x_left times k_left elements exist; moves one tile on.
    __device__ __forceinline__ void fetch(int x_left, int k_left)
    {
        const int lines = ALONG_K ? x_left : k_left;
        const int length = (ALONG_K ? k_left : x_left) - at;
        const element* from = next;
        if (vectors && x_left >= LENGTH && k_left >= BLOCK_K) {
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c, from += STEP * line_stride) {
                if (LINES % STEP != 0 && line + c * STEP >= LINES) break;
                chunks[c] = *reinterpret_cast<const Vector<element, VEC>*>(from);
            }
        } else {  // an edge, or no vectors; what does not exist becomes 0
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c, from += STEP * line_stride) {
                const int exist = line + c * STEP < lines ? length : 0;
#pragma unroll
                for (int e = 0; e < VEC; ++e)
                    chunks[c].at[e] = e < exist ? from[e * chunk_stride] : from_float<element>(0.0f);
            }
        }
        next += BLOCK_K * (ALONG_K ? chunk_stride : line_stride);
    }

    /// Writes the tile to shared memory.
    __device__ __forceinline__ void place(float* tile) const
    {
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const int this_line = line + c * STEP;
            if (LINES % STEP != 0 && this_line >= LINES) break;
            float values[VEC];
#pragma unroll
            for (int e = 0; e < VEC; ++e) values[e] = to_float(chunks[c].at[e]);
            if constexpr (ALONG_K) {
#pragma unroll
                for (int e = 0; e < VEC; ++e) tile[(at + e) * ROW + this_line] = values[e];
            } else {
                store_floats<ROW>(tile + this_line * ROW + at, values);
            }
        }
    }
};

/// c = alpha * a * b, one tile a block.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
matrix_product(View<element, 4> a, View<element, 4> b, View<element, 4> c, int NH, int group, int M, int N, int K,
               float alpha)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const a_tiles = reinterpret_cast<float*>(smem);
    float* const b_tiles = a_tiles + STAGES * BLOCK_K * A_ROW;

    const int matrix = blockIdx.z;
    const int row_begin = blockIdx.y * BLOCK_M;
    const int col_begin = blockIdx.x * BLOCK_N;
    const int row_end = min(row_begin + BLOCK_M, M);
    const int batch = matrix / NH;
    const int head = matrix % NH;
    const int b_head = head / group;  // several matrices may share one of B

    Summands range = Summands::of_rows<TRIANGLE>(row_begin, row_end, M, K, BLOCK_K);
    if (!wanted<TRIANGLE>(row_end - 1, col_begin, M, N)) range.end = 0;  // the whole tile is 0
    const int steps = max(0, (range.end - range.begin + BLOCK_K - 1) / BLOCK_K);

    OperandInFlight<BLOCK_M, A_ROW, A_ALONG_K> a_flight(
        matrix_of(a, batch, head) + row_begin * a.stride[2] + range.begin * a.stride[3], a.stride[2], a.stride[3],
        allows_vectors_along<A_ALONG_K ? 3 : 2, VEC>(a));
    OperandInFlight<BLOCK_N, B_ROW, B_ALONG_K> b_flight(
        matrix_of(b, batch, b_head) + range.begin * b.stride[2] + col_begin * b.stride[3], b.stride[3], b.stride[2],
        allows_vectors_along<B_ALONG_K ? 2 : 3, VEC>(b));
    const auto fetch = [&](int step) {
        const int k_left = K - range.begin - step * BLOCK_K;
        a_flight.fetch(M - row_begin, k_left);
        b_flight.fetch(N - col_begin, k_left);
    };
    const auto place = [&](int step) {
        a_flight.place(a_tiles + step % STAGES * BLOCK_K * A_ROW);
        b_flight.place(b_tiles + step % STAGES * BLOCK_K * B_ROW);
    };

    const Threads threads;
    float acc[M_TILE][N_TILE] = {};
    if (steps > 0) {
        fetch(0);
        place(0);
    }
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const bool more = step + 1 < steps;
        if (more) fetch(step + 1);
        multiply_tn<M_TILE, N_TILE, BLOCK_K, A_ROW, WIDTH * Threads::ROWS, B_ROW, WIDTH * Threads::COLS, WIDTH, UNROLL>(
            acc, a_tiles + step % STAGES * BLOCK_K * A_ROW + WIDTH * threads.row,
            b_tiles + step % STAGES * BLOCK_K * B_ROW + WIDTH * threads.col);
        if (STAGES == 1) __syncthreads();  // the only tiles have been read
        if (more) place(step + 1);
        __syncthreads();
    }

    element* const result = matrix_of(c, batch, head);
    const bool vectors_c = allows_vectors<WIDTH>(c);
#pragma unroll
    for (int i = 0; i < M_TILE; ++i) {
        const int row = row_begin + i / WIDTH * WIDTH * Threads::ROWS + WIDTH * threads.row + i % WIDTH;
        if (row >= M) continue;
#pragma unroll
        for (int j = 0; j < N_TILE; j += WIDTH) {
            const int col = col_begin + j * Threads::COLS + WIDTH * threads.col;
            float part[WIDTH];
#pragma unroll
            for (int e = 0; e < WIDTH; ++e)
                part[e] = wanted<TRIANGLE>(row, col + e, M, N) ? alpha * acc[i][j + e] : 0.0f;
            write_part<STORES>(result + row * c.stride[2], c.stride[3], col, N, part, vectors_c);
        }
    }

    mend_product<TRIANGLE, THREADS>(a, b, c, batch, head, b_head, row_begin, row_end - row_begin, col_begin,
                                    min(BLOCK_N, N - col_begin), M, K, alpha);
}

// buffer a: 3145728 fp16, input
// buffer b: 3145728 fp16, input
// buffer c: 50331648 fp16, output
// launch matrix_product grid=(16, 8, 48) block=(128, 1, 1) smem=25600 (a, b, c, NH, group, M, N, K, alpha)
