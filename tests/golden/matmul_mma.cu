// autotune: matmul/mma: tensor cores (mma.sync m16n8k16): 16-bit operands by cp.async and ldmatrix, fp32 accumulation
// problem:       B=4 NH=12 M=1024 N=1024 K=64 dtype=fp16 layout=nt mask=none alpha=1.0
// configuration: BLOCK_M=128 BLOCK_N=64 BLOCK_K=64 WARPS_M=4 WARPS_N=1 STAGES=2 TILES_EACH=4 SWIZZLE=True MIN_BLOCKS=3 EPILOGUE=shared STORES=streaming GRID_MAP=x=cols,y=rows,z=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          15cf947ce320b2ce

#include "common/async_copy.cuh"
#include "common/ldmatrix.cuh"
#include "common/matrix_product.cuh"
#include "common/mma.cuh"
#include "common/row_access.cuh"
#include "common/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 64;
constexpr int BLOCK_K = 64;          // summands a step
constexpr int WARPS_M = 4;
constexpr int WARPS_N = 1;
constexpr int STAGES = 2;            // tiles of each operand in shared memory
constexpr int TILES_EACH = 4;        // neighbouring tiles of C a block, one after the other
constexpr bool SWIZZLE = true;        // rows of a tile exchange chunks, or are a chunk longer
constexpr bool A_ALONG_K = true;      // neighbours in memory are neighbours along K, not along M
constexpr bool B_ALONG_K = true;
constexpr Triangle TRIANGLE = Triangle::NONE;
constexpr Access STORES = Access::STREAMING;

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_ROWS = BLOCK_M / WARPS_M;
constexpr int WARP_COLS = BLOCK_N / WARPS_N;
constexpr int M_TILES = WARP_ROWS / 16;
constexpr int N_TILES = WARP_COLS / 8;

/// A tile of an operand: LENGTH rows (or columns) of it, BLOCK_K summands, stored as it lies in memory. A thread copies
/// one chunk of 8 elements of every STEP-th row.
template <int LENGTH, bool ALONG_K>
struct Operand {
    using Tile = SharedTile<ALONG_K ? BLOCK_K : LENGTH, SWIZZLE>;
    static constexpr int ROWS = ALONG_K ? LENGTH : BLOCK_K;
    static constexpr int BYTES = Tile::bytes(ROWS);
    static constexpr int STEP = THREADS / Tile::CHUNKS;
    static constexpr int COPIES = (ROWS + STEP - 1) / STEP;
    static_assert(THREADS % Tile::CHUNKS == 0, "threads share out whole rows");

    const element* next;   // this thread's first chunk of the tile that is fetched next
    const element* start;  // the same of the first summands
    long long row_stride;
    long long col_stride;
    int first_row = threadIdx.x / Tile::CHUNKS;
    int chunk = threadIdx.x % Tile::CHUNKS;
    bool vectors;

    /// The operand's first tile is at `from`; x counts along M or N.
    __device__ __forceinline__ Operand(const element* from, long long x_stride, long long k_stride, bool vectors_)
        : row_stride(ALONG_K ? x_stride : k_stride), col_stride(ALONG_K ? k_stride : x_stride), vectors(vectors_)
    {
        start = next = from + first_row * row_stride + chunk * 8 * col_stride;
    }

    /// Goes back to the first summands, `lengths` tiles further along M or N.
    __device__ __forceinline__ void rewind(int lengths)
    {
        next = start += lengths * LENGTH * (ALONG_K ? row_stride : col_stride);
    }

    /// Starts to copy the tile at the current place, of which x_left times k_left elements exist; moves one tile on.
    __device__ __forceinline__ void fetch(unsigned char* tile, int x_left, int k_left)
    {
        if (vectors && x_left >= LENGTH && k_left >= BLOCK_K) {
            const SharedAddress to = shared_address(tile);
            const element* source = next;
#pragma unroll
            for (int c = 0; c < COPIES; ++c, source += STEP * row_stride) {
                const int row = first_row + c * STEP;
                if (ROWS % STEP != 0 && row >= ROWS) break;
                copy_async(to + Tile::offset(row, chunk), source, true);
            }
        } else {
            fetch_part(tile, ALONG_K ? x_left : k_left, (ALONG_K ? k_left : x_left) - chunk * 8);
        }
        next += BLOCK_K * (ALONG_K ? col_stride : row_stride);
    }

    /// The same at an edge, or without vectors. What does not exist becomes 0, so that whatever lies in memory there
    /// cannot leak into products.
    __device__ __forceinline__ void fetch_part(unsigned char* tile, int rows, int cols)
    {
        const element* source = next;
#pragma unroll 1
        for (int row = first_row; row < ROWS; row += STEP, source += STEP * row_stride) {
            Vector<element, 8> part;
            if (vectors && row < rows && cols >= 8) {
                part = *reinterpret_cast<const Vector<element, 8>*>(source);
            } else {
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    part.at[e] = row < rows && e < cols ? source[e * col_stride] : from_float<element>(0.0f);
            }
            *reinterpret_cast<Vector<element, 8>*>(tile + Tile::offset(row, chunk)) = part;
        }
    }
};

using OperandA = Operand<BLOCK_M, A_ALONG_K>;
using OperandB = Operand<BLOCK_N, B_ALONG_K>;
using TileA = OperandA::Tile;
using TileB = OperandB::Tile;
using TileC = SharedTile<WARP_COLS, SWIZZLE>;  // a warp's part of C

/// Offset of the row that this lane gives to ldmatrix, for the 16x16 piece at (0, 0) of a tile. The piece's four 8x8
/// matrices come down its rows first (A stored along K, and B stored along N, which is read transposed: an A operand,
/// and two B operands of neighbouring columns), or across its columns first (the other two).
template <class Tile, bool ROWS_FIRST>
__device__ __forceinline__ int lane_row()
{
    const int lane = threadIdx.x % 32;
    return ROWS_FIRST ? Tile::offset(lane % 16, lane / 16) : Tile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

/// acc += A B for one step and this warp's part of C.
__device__ __forceinline__ void multiply(float (&acc)[M_TILES][N_TILES][4], const unsigned char* a_tile,
                                         const unsigned char* b_tile, int warp_row, int warp_col)
{
    const SharedAddress a_from = shared_address(a_tile);
    const SharedAddress b_from = shared_address(b_tile);
    const int a_lane = lane_row<TileA, A_ALONG_K>();
    const int b_lane = lane_row<TileB, !B_ALONG_K>();
#pragma unroll
    for (int step = 0; step < BLOCK_K / 16; ++step) {
        uint32_t a[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            const int row = warp_row + 16 * m;
            if constexpr (A_ALONG_K)
                ldmatrix(a[m], a_from + TileA::advance(a_lane, 2 * step) + TileA::bytes(row));
            else
                ldmatrix_transposed(a[m], a_from + TileA::advance(a_lane, row / 8) + TileA::bytes(16 * step));
        }
#pragma unroll
        for (int n = 0; n < N_TILES; n += 2) {
            const int col = warp_col + 8 * n;
            uint32_t b[4];
            if constexpr (B_ALONG_K)
                ldmatrix(b, b_from + TileB::advance(b_lane, 2 * step) + TileB::bytes(col));
            else
                ldmatrix_transposed(b, b_from + TileB::advance(b_lane, col / 8) + TileB::bytes(16 * step));
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                mma_16x8x16<element>(acc[m][n], a[m], b[0], b[1]);
                mma_16x8x16<element>(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/// Where a tile of C goes.
struct Result {
    element* matrix;
    long long row_stride;
    long long col_stride;
    int M;
    int N;
    float alpha;
    bool vectors;

    /// Writes this warp's part, whose first element is (row_begin, col_begin) of C.
    __device__ __forceinline__ void write(const float (&acc)[M_TILES][N_TILES][4], int row_begin, int col_begin,
                                          unsigned char* warp_tile) const
    {
        // This thread has elements (row, col) and (row, col + 1) of each piece of 8 by 8.
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = lane / 4 + 16 * m + 8 * half;
#pragma unroll
                for (int n = 0; n < N_TILES; ++n) {
                    const int col = lane % 4 * 2 + 8 * n;
                    float both[2];
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const bool kept = wanted<TRIANGLE>(row_begin + row, col_begin + col + e, M, N);
                        both[e] = kept ? alpha * acc[m][n][2 * half + e] : 0.0f;
                    }
                    *reinterpret_cast<uint32_t*>(warp_tile + TileC::offset(row, n) + lane % 4 * 4) =
                        pack<element>(both[0], both[1]);
                }
            }
        __syncwarp();
        write_lines(row_begin, col_begin, warp_tile);
        __syncwarp();
    }

    /// The same from shared memory, 8 elements a thread, so that neighbouring threads write neighbouring addresses.
    __device__ __forceinline__ void write_lines(int row_begin, int col_begin, const unsigned char* warp_tile) const
    {
        const int lane = threadIdx.x % 32;
        const bool whole = vectors && row_begin + WARP_ROWS <= M && col_begin + WARP_COLS <= N;
        element* const first = matrix + row_begin * row_stride + col_begin * col_stride;
#pragma unroll 4
        for (int i = lane; i < WARP_ROWS * TileC::CHUNKS; i += 32) {
            const int row = i / TileC::CHUNKS;
            const int col = i % TileC::CHUNKS * 8;
            const auto part = *reinterpret_cast<const Vector<element, 8>*>(warp_tile + TileC::offset(row, col / 8));
            element* const to = first + row * row_stride + col * col_stride;
            if (whole)
                write_vector<STORES>(to, part);
            else if (row_begin + row < M)
                write_elements(to, N - col_begin - col, part);
        }
    }

    /// At an edge, or without vectors.
    __device__ __forceinline__ void write_elements(element* to, int exist, const Vector<element, 8>& part) const
    {
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (e < exist) to[e * col_stride] = part.at[e];
    }
};

/// c = alpha * a * b, TILES_EACH tiles side by side a block.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
matrix_product(View<element, 4> a, View<element, 4> b, View<element, 4> c, int NH, int M, int N, int K, float alpha)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const a_tiles = smem;
    unsigned char* const b_tiles = smem + STAGES * OperandA::BYTES;
    unsigned char* const c_tiles = b_tiles + STAGES * OperandB::BYTES;

    const int matrix = blockIdx.z;
    const int row_begin = blockIdx.y * BLOCK_M;
    const int col_begin = blockIdx.x * (BLOCK_N * TILES_EACH);
    const int row_end = min(row_begin + BLOCK_M, M);
    const int batch = matrix / NH;
    const int head = matrix % NH;

    const Summands range = Summands::of_rows<TRIANGLE>(row_begin, row_end, M, K, 8);  // chunks stay aligned
    const int steps = max(0, (range.end - range.begin + BLOCK_K - 1) / BLOCK_K);
    const int tiles = min(TILES_EACH, (N - col_begin + BLOCK_N - 1) / BLOCK_N);
    // Tiles that are 0 come after those that are not.
    const int cols_wanted = TRIANGLE == Triangle::C_LOWER ? row_end + N - M - col_begin : N - col_begin;
    const int all_steps = steps * min(tiles, max(0, (cols_wanted + BLOCK_N - 1) / BLOCK_N));
    // Where one step takes all summands, the tile of A stays for all tiles of C.
    const bool one_a = TILES_EACH > 1 && steps == 1;

    OperandA a_operand(matrix_of(a, batch, head) + row_begin * a.stride[2] + range.begin * a.stride[3], a.stride[2],
                       a.stride[3], allows_vectors_along<A_ALONG_K ? 3 : 2, 8>(a));
    OperandB b_operand(matrix_of(b, batch, head) + range.begin * b.stride[2] + col_begin * b.stride[3], b.stride[3],
                       b.stride[2], allows_vectors_along<B_ALONG_K ? 2 : 3, 8>(b));
    int fetched = 0;     // steps so far, of all tiles
    int k_left = K - range.begin;
    int cols_left = N - col_begin;
    const auto fetch = [&] {
        if (!one_a || fetched == 0)
            a_operand.fetch(a_tiles + fetched % STAGES * OperandA::BYTES, M - row_begin, k_left);
        b_operand.fetch(b_tiles + fetched % STAGES * OperandB::BYTES, cols_left, k_left);
        ++fetched;
        k_left -= BLOCK_K;
        if (TILES_EACH > 1 && k_left <= K - range.begin - steps * BLOCK_K) {  // on to the next tile of C
            a_operand.rewind(0);
            b_operand.rewind(1);
            k_left = K - range.begin;
            cols_left -= BLOCK_N;
        }
    };

    const int warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * WARP_ROWS;  // this warp's part of a tile of C
    const int warp_col = warp % WARPS_N * WARP_COLS;
    unsigned char* const warp_tile = c_tiles + warp * TileC::bytes(WARP_ROWS);
    const Result result{matrix_of(c, batch, head), c.stride[2], c.stride[3], M, N, alpha,
                        allows_vectors<8>(c)};

#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < all_steps) fetch();
        commit_copies();
    }
    int step = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        float acc[M_TILES][N_TILES][4] = {};
        const int end = min(step + steps, all_steps);
#pragma unroll 1
        for (; step < end; ++step) {
            wait_for_copies<STAGES - 2>();
            __syncthreads();  // the tiles of this step are there, and those of the step before have been read
            if (step + STAGES - 1 < all_steps) fetch();
            commit_copies();
            multiply(acc, a_tiles + (one_a ? 0 : step % STAGES * OperandA::BYTES),
                     b_tiles + step % STAGES * OperandB::BYTES, warp_row, warp_col);
        }
        result.write(acc, row_begin + warp_row, col_begin + tile * BLOCK_N + warp_col, warp_tile);
    }
}

// buffer a: 3145728 fp16, input
// buffer b: 3145728 fp16, input
// buffer c: 50331648 fp16, output
// launch matrix_product grid=(4, 8, 48) block=(128, 1, 1) smem=65536 (a, b, c, NH, M, N, K, alpha)
