// Rows of 16-bit elements that begin anywhere, copied to rows of whole 16 bytes, one behind the other, as TMA takes them.
#pragma once

#include <cstdint>

#include "common/view.cuh"

/// The width of a packed row of HS elements.
template <int HS>
constexpr int PACKED_COLS = (HS + 7) / 8 * 8;

/// 8 elements of a row of HS from column `col` on, a multiple of 8; those past HS are 0. By words where they lie in one row.
template <int HS>
__device__ __forceinline__ uint4 load_chunk(const uint16_t* row, long long col_stride, int col)
{
    const int count = HS % 8 == 0 ? 8 : min(8, HS - col);
    const uint16_t* const from = row + col * col_stride;
    uint32_t words[4];
    if (col_stride == 1 && reinterpret_cast<uintptr_t>(from) % 4 == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = 0;
            if (2 * i + 1 < count)
                words[i] = *reinterpret_cast<const uint32_t*>(from + 2 * i);
            else if (2 * i < count)
                words[i] = from[2 * i];
        }
    } else if (col_stride == 1 && count == 8) {  // the first element and the last, and three words between them
        uint32_t between[5];
        between[0] = static_cast<uint32_t>(from[0]) << 16;
#pragma unroll
        for (int i = 0; i < 3; ++i) between[i + 1] = *reinterpret_cast<const uint32_t*>(from + 2 * i + 1);
        between[4] = from[7];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = between[i] >> 16 | between[i + 1] << 16;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t low = 2 * i < count ? from[2 * i * col_stride] : 0;
            const uint32_t high = 2 * i + 1 < count ? from[(2 * i + 1) * col_stride] : 0;
            words[i] = low | high << 16;
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/// A block of THREADS packs its ROWS rows of a (B, heads, rows, HS) tensor; `block` counts those of the tensor, and blocks
/// before 0 or past its last have nothing to do. Returns the number of the block among those of the tensor that follows.
template <int ROWS, int THREADS, int HS, class T>
__device__ __forceinline__ int pack_block(const View<T, 4>& tensor, T* packed, int block, int B, int heads, int rows)
{
    static_assert(sizeof(T) == 2, "eight elements are 16 bytes");
    constexpr int CHUNKS = PACKED_COLS<HS> / 8;
    const int blocks = (rows + ROWS - 1) / ROWS;  // of a matrix
    if (0 <= block && block < B * heads * blocks) {
        const int matrix = block / blocks, first = block % blocks * ROWS;
        const T* const from = matrix_of(tensor, matrix / heads, matrix % heads);
        T* const to = packed + static_cast<long long>(matrix) * rows * PACKED_COLS<HS>;
#pragma unroll 4
        for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
            const int row = first + i / CHUNKS, col = i % CHUNKS * 8;
            if (row >= rows) break;
            const uint16_t* const own = reinterpret_cast<const uint16_t*>(from + row * tensor.stride[2]);
            *reinterpret_cast<uint4*>(to + static_cast<long long>(row) * PACKED_COLS<HS> + col) =
                load_chunk<HS>(own, tensor.stride[3], col);
        }
    }
    return block - B * heads * blocks;
}
