// autotune: matmul/mma: tensor cores (mma.sync): 16-bit operands, or fp32 ones rounded to tf32, by cp.async and ldmatrix; fp32 accumulation
// problem:       B=4 NH=12 M=1024 N=1024 K=64 dtype=fp16 layout=nt mask=none alpha=1.0 group=1 interleaved=none arithmetic=full
// configuration: BLOCK_M=128 BLOCK_N=128 BLOCK_K=64 WARPS_M=2 WARPS_N=2 STAGES=2 TILES_EACH=8 SWIZZLE=True MIN_BLOCKS=2 EPILOGUE=shared STORES=cached REVERSE=False GRID_MAP=x=cols,y=rows,z=matrix
// compile:       nvcc -std=c++17 -O3 -arch=sm_90a -I templates -cubin <this file>
// hash:          6d849d9b023542b4

#include "common/matmul/exact_product.cuh"
#include "common/matmul/matrix_tiles.cuh"
#include "common/matmul/triangle.cuh"
#include "common/ptx/ldmatrix.cuh"
#include "common/ptx/mma.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/tile/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using element = __half;

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;          // summands a step
constexpr int WARPS_M = 2;
constexpr int WARPS_N = 2;
constexpr int STAGES = 2;            // tiles of each operand in shared memory
constexpr int TILES_EACH = 8;        // neighbouring tiles of C a block, one after the other
constexpr bool REVERSE = false;        // the last rows first
constexpr bool SWIZZLE = true;        // rows of a tile exchange chunks, or are a chunk longer
constexpr bool A_ALONG_K = true;      // neighbours in memory are neighbours along K, not along M
constexpr bool B_ALONG_K = true;
constexpr Triangle TRIANGLE = Triangle::NONE;
constexpr Access STORES = Access::CACHED;
constexpr bool SHARED = true;         // C by way of shared memory

constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_ROWS = BLOCK_M / WARPS_M;
constexpr int WARP_COLS = BLOCK_N / WARPS_N;
constexpr int M_TILES = WARP_ROWS / 16;
constexpr int N_TILES = WARP_COLS / 8;

using TileA = SharedTile<A_ALONG_K ? BLOCK_K : BLOCK_M, SWIZZLE>;
using TileB = SharedTile<B_ALONG_K ? BLOCK_K : BLOCK_N, SWIZZLE>;
using OperandA = OperandStream<element, TileA, BLOCK_M, BLOCK_K, A_ALONG_K, THREADS>;
using OperandB = OperandStream<element, TileB, BLOCK_N, BLOCK_K, B_ALONG_K, THREADS>;
using Result = ResultWriter<element, M_TILES, N_TILES, TRIANGLE, STORES, SHARED, SWIZZLE>;

/// Offset of the row that this lane gives to ldmatrix, for the 16x16 piece at (0, 0) of a tile (16x8 of floats). The
/// piece's four matrices come down its rows first (A stored along K, and B stored along N, which is read transposed: an A
/// operand, and two B operands of neighbouring columns), or across its columns first (the other two).
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

/// c = alpha * a * b, TILES_EACH tiles side by side a block.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
matrix_product(View<element, 4> a, View<element, 4> b, View<element, 4> c, int NH, int group, int M, int N, int K,
               float alpha)
{
    extern __shared__ __align__(128) unsigned char smem[];
    unsigned char* const a_tiles = smem;
    unsigned char* const b_tiles = smem + STAGES * OperandA::BYTES;
    unsigned char* const c_tiles = TILES_EACH > 1 ? b_tiles + STAGES * OperandB::BYTES : smem;

    const int matrix = blockIdx.z;
    const int row_tile = REVERSE ? gridDim.y - 1 - blockIdx.y : blockIdx.y;
    const int row_begin = row_tile * BLOCK_M;
    const int col_begin = blockIdx.x * (BLOCK_N * TILES_EACH);
    const int row_end = min(row_begin + BLOCK_M, M);
    const int batch = matrix / NH;
    const int head = matrix % NH;
    const int b_head = head / group;  // several matrices may share one of B

    const Summands range = Summands::of_rows<TRIANGLE>(row_begin, row_end, M, K, 8);  // chunks stay aligned
    const int steps = max(0, (range.end - range.begin + BLOCK_K - 1) / BLOCK_K);
    const int tiles = min(TILES_EACH, (N - col_begin + BLOCK_N - 1) / BLOCK_N);
    // Tiles that are 0 come after those that are not.
    const int cols_wanted = TRIANGLE == Triangle::C_LOWER ? row_end + N - M - col_begin : N - col_begin;
    const int tiles_wanted = min(tiles, max(0, (cols_wanted + BLOCK_N - 1) / BLOCK_N));
    const int all_steps = steps * tiles_wanted;
    // Where one step takes all summands, the tile of A stays for all tiles of C.
    const bool one_a = TILES_EACH > 1 && steps == 1;

    OperandA a_operand(matrix_of(a, batch, head) + row_begin * a.stride[2] + range.begin * a.stride[3], a.stride[2],
                       a.stride[3], allows_vectors_along<A_ALONG_K ? 3 : 2, OperandA::CHUNK>(a));
    OperandB b_operand(matrix_of(b, batch, b_head) + range.begin * b.stride[2] + col_begin * b.stride[3], b.stride[3],
                       b.stride[2], allows_vectors_along<B_ALONG_K ? 2 : 3, OperandB::CHUNK>(b));
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
    unsigned char* const warp_tile = c_tiles + warp * Result::BYTES;
    const Result result(c, batch, head, M, N, alpha);

#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < all_steps) fetch();
        commit_copies();
    }
    int step = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles_wanted; ++tile) {
        float acc[M_TILES][N_TILES][4] = {};
        const int end = step + steps;
#pragma unroll 1
        for (; step < end; ++step) {
            if constexpr (STAGES == 1) {
                __syncthreads();  // the tiles of the step before have been read
                fetch();
                commit_copies();
                wait_for_copies<0>();
                __syncthreads();
            } else {
                wait_for_copies<STAGES - 2>();
                __syncthreads();  // the tiles of this step are there, and those of the step before have been read
                if (step + STAGES - 1 < all_steps) fetch();
                commit_copies();
            }
            multiply(acc, a_tiles + (one_a ? 0 : step % STAGES * OperandA::BYTES),
                     b_tiles + step % STAGES * OperandB::BYTES, warp_row, warp_col);
        }
        if constexpr (TILES_EACH == 1 && SHARED) __syncthreads();  // the operands have been read; C takes their place
        result.write(acc, row_begin + warp_row, col_begin + tile * BLOCK_N + warp_col, warp_tile);
    }
#pragma unroll 1
    for (int tile = tiles_wanted; tile < tiles; ++tile)
        result.write_zeros(row_begin + warp_row, col_begin + tile * BLOCK_N + warp_col);

    mend_product<TRIANGLE, THREADS>(a, b, c, batch, head, b_head, row_begin, row_end - row_begin, col_begin,
                                    min(BLOCK_N * TILES_EACH, N - col_begin), M, K, alpha);
}

// buffer a: 3145728 fp16, input
// buffer b: 3145728 fp16, input
// buffer c: 50331648 fp16, output
// launch matrix_product grid=(1, 8, 48) block=(128, 1, 1) smem=98304 (a, b, c, NH, group, M, N, K, alpha)
