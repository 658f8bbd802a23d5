// What the attention gradients on tensor cores share: warps that own rows of one side of the scores and meet tiles of
// the other, and the accumulation of fp32 fragments in device memory.
#pragma once

#include "common/ldmatrix.cuh"
#include "common/mma.cuh"
#include "common/shared_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

/// A flag whose value the compiler knows.
template <bool VALUE>
struct Known {
    __device__ constexpr operator bool() const { return VALUE; }
};

/// 16 * M rows of a tile that a warp multiplies again and again, as A operands.
template <class Tile, int M, bool IN_REGISTERS>
struct OwnRows {
    SharedAddress row;  // of this lane, for ldmatrix
    uint32_t kept[IN_REGISTERS ? Tile::CHUNKS / 2 : 1][M][4];

    __device__ __forceinline__ explicit OwnRows(SharedAddress lane_row) : row(lane_row) {}

    /// Reads them once and for all, if they are to stay in registers. The tile must have arrived.
    __device__ __forceinline__ void keep()
    {
        if constexpr (IN_REGISTERS) {
#pragma unroll
            for (int step = 0; step < Tile::CHUNKS / 2; ++step) read(kept[step], step);
        }
    }

    /// Chunks 2 * step and 2 * step + 1: 16 columns, or 8 of floats.
    __device__ __forceinline__ void read(uint32_t (&to)[M][4], int step) const
    {
#pragma unroll
        for (int m = 0; m < M; ++m) ldmatrix(to[m], Tile::advance(row, 2 * step) + Tile::bytes(16 * m));
    }
};

/// acc = own rows times 8 * N rows of a tile, over the head: S = K Q^T, dP = V dO^T. `row`: the lane's in the tile, for
/// ldmatrix with columns first.
template <class T, class Tile, int M, int N, bool IN_REGISTERS>
__device__ __forceinline__ void multiply_over_head(float (&acc)[M][N][4], const OwnRows<Tile, M, IN_REGISTERS>& own,
                                                   SharedAddress row)
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[m][n][e] = 0.0f;
#pragma unroll
    for (int step = 0; step < Tile::CHUNKS / 2; ++step) {
        uint32_t fresh[M][4];
        if constexpr (!IN_REGISTERS) own.read(fresh, step);
        const auto& a = IN_REGISTERS ? own.kept[IN_REGISTERS ? step : 0] : fresh;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            ldmatrix(b, Tile::advance(row, 2 * step) + Tile::bytes(8 * n));
#pragma unroll
            for (int m = 0; m < M; ++m) {
                mma_16x8x16<T>(acc[m][n], a[m], b[0], b[1]);
                mma_16x8x16<T>(acc[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/// Warps that share out the columns of a matrix take them by turns, 16 at a time: of its pieces of 8 columns, the n-th
/// that a warp has, counted from its first.
template <int SHARERS>
__host__ __device__ constexpr int nth_piece(int n)
{
    return n / 2 * 2 * SHARERS + n % 2;
}

/// acc += a times 16 rows of a tile: dV += P^T dO, dK += dS^T Q, dQ += dS K. Of the tile's columns, those that one of
/// SHARERS warps has, from its `from`-th piece on. `row`: the lane's in the first piece of the first of these rows, for
/// ldmatrix with rows first.
template <class T, class Tile, int SHARERS = 1, int M, int N>
__device__ __forceinline__ void multiply_over_rows(float (&acc)[M][N][4], const uint32_t (&a)[M][4], SharedAddress row,
                                                   int from = 0)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        ldmatrix_transposed(b, Tile::advance(row, nth_piece<SHARERS>(from + n)));
#pragma unroll
        for (int m = 0; m < M; ++m) {
            mma_16x8x16<T>(acc[m][n], a[m], b[0], b[1]);
            mma_16x8x16<T>(acc[m][n + 1], a[m], b[2], b[3]);
        }
    }
}

/// Columns 8 * n to 8 * n + 15 of a product as an A operand of the next one.
template <class T, int M, int N>
__device__ __forceinline__ void as_operand(uint32_t (&a)[M][4], const float (&x)[M][N][4], int n)
{
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a[m][i] = pack<T>(x[m][n + i / 2][i % 2 * 2], x[m][n + i / 2][i % 2 * 2 + 1]);
}

/// Two rounded numbers as floats.
template <class T>
__device__ __forceinline__ float2 unpack_pair(uint32_t both);
template <>
__device__ __forceinline__ float2 unpack_pair<__half>(uint32_t both)
{
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
}
template <>
__device__ __forceinline__ float2 unpack_pair<__nv_bfloat16>(uint32_t both)
{
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&both));
}

/// One of two numbers packed in a word; 0 is the low half.
template <class T>
__device__ __forceinline__ T half_of(uint32_t both, int half)
{
    const uint16_t bits = static_cast<uint16_t>(both >> 16 * half);
    return *reinterpret_cast<const T*>(&bits);
}

/// Rounds factor * x and places it in a tile, from row `row` and piece `first` on; see `nth_piece`.
template <class T, class Tile, int SHARERS, int M, int N>
__device__ __forceinline__ void place_rows(unsigned char* tile, int row, const float (&x)[M][N][4], float factor,
                                           int first)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const uint32_t both = pack<T>(x[m][n][2 * half] * factor, x[m][n][2 * half + 1] * factor);
                const int at = Tile::offset(row + 16 * m + 8 * half + lane / 4, first + nth_piece<SHARERS>(n));
                *reinterpret_cast<uint32_t*>(tile + at + lane % 4 * 4) = both;
            }
}

/// Writes the first `rows` of a tile's ROWS rows to a matrix; called by all THREADS threads.
template <class T, class Tile, int ROWS, int THREADS>
__device__ __forceinline__ void write_rows(T* to, const View<T, 4>& tensor, int rows, const unsigned char* tile)
{
    const bool vectors = allows_vectors<8>(tensor);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * Tile::CHUNKS; i += THREADS) {
        const int row = i / Tile::CHUNKS;
        const int chunk = i % Tile::CHUNKS;
        if (row >= rows) break;
        const auto part = *reinterpret_cast<const Vector<T, 8>*>(tile + Tile::offset(row, chunk));
        T* const result = to + row * tensor.stride[2] + chunk * 8 * tensor.stride[3];
        if (vectors) {
            *reinterpret_cast<Vector<T, 8>*>(result) = part;
        } else {
#pragma unroll
            for (int e = 0; e < 8; ++e) result[e * tensor.stride[3]] = part.at[e];
        }
    }
}

/// Sums of fragments in device memory, 128 floats for each 16x8 piece of a matrix, in an order in which a warp adds to
/// neighbouring addresses: by vectors of 4 where the device adds those (sm_90 and later), else by floats.
struct FragmentSums {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    static constexpr bool VECTORS = true;
#else
    static constexpr bool VECTORS = false;
#endif

    /// Adds a warp's fragment to a piece, which other blocks add to as well: their order is left to chance.
    static __device__ __forceinline__ void add(float* piece, const float (&x)[4])
    {
        const int lane = threadIdx.x % 32;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        atomicAdd(reinterpret_cast<float4*>(piece) + lane, make_float4(x[0], x[1], x[2], x[3]));
#else
#pragma unroll
        for (int e = 0; e < 4; ++e) atomicAdd(piece + e * 32 + lane, x[e]);
#endif
    }

    /// The fragment that a lane's additions to a piece have made.
    static __device__ __forceinline__ void read(float (&x)[4], const float* piece)
    {
        const int lane = threadIdx.x % 32;
        if constexpr (VECTORS) {
            const float4 all = reinterpret_cast<const float4*>(piece)[lane];
            x[0] = all.x;
            x[1] = all.y;
            x[2] = all.z;
            x[3] = all.w;
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e) x[e] = piece[e * 32 + lane];
        }
    }
};

/// Four lanes exchange four words each: lane q of them gets word q of lane j as word j.
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4])
{
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool odd = threadIdx.x & bit;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & bit) continue;
            const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? x[i] : x[i + bit], bit);
            (odd ? x[i] : x[i + bit]) = got;
        }
    }
}
