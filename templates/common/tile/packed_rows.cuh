// Rows of 16-bit elements that begin anywhere, copied to rows of whole 16 bytes, one behind the other, as TMA takes them.
#pragma once

#include <cstdint>

#include "common/view.cuh"

/// The width of a packed row of HS elements.
template <int HS>
constexpr int PACKED_COLS = (HS + 7) / 8 * 8;

/// 8 elements of a row on their way, as loads bring them: words at multiples of 4 bytes, so that loads of several chunks wait
/// for memory together. Where the first element lies between two, it comes alone, and so does the last.
struct Chunk {
    uint32_t words[5];
    bool between;

    __device__ __forceinline__ uint4 joined() const
    {
        if (!between) return make_uint4(words[0], words[1], words[2], words[3]);
        return make_uint4(words[0] | words[1] << 16, words[1] >> 16 | words[2] << 16, words[2] >> 16 | words[3] << 16,
                          words[3] >> 16 | words[4] << 16);
    }
};

/// The elements of a row of HS from column `col` on, a multiple of 8; those past HS are 0.
template <int HS>
__device__ __forceinline__ Chunk load_chunk(const uint16_t* row, long long col_stride, int col)
{
    const int count = HS % 8 == 0 ? 8 : min(8, HS - col);
    const uint16_t* const from = row + col * col_stride;
    Chunk chunk = { {0, 0, 0, 0, 0}, col_stride == 1 && reinterpret_cast<uintptr_t>(from) % 4 != 0};
    if (col_stride != 1) {
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (e < count) chunk.words[e / 2] |= static_cast<uint32_t>(from[e * col_stride]) << e % 2 * 16;
        return chunk;
    }
    const int alone = chunk.between;  // elements before the first word
    if (chunk.between) chunk.words[0] = from[0];
    if (chunk.between && count == 8) chunk.words[4] = from[7];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int e = 2 * i - alone;  // of the word's first element
        if (e >= 0 && e + 1 < count)
            chunk.words[i] = *reinterpret_cast<const uint32_t*>(from + e);
        else if (e >= 0 && e < count)
            chunk.words[i] = from[e];
    }
    return chunk;
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
        constexpr int PASSES = (ROWS * CHUNKS + THREADS - 1) / THREADS;
        Chunk chunks[PASSES];
        const auto visit = [&](const auto& place) {
#pragma unroll
            for (int pass = 0; pass < PASSES; ++pass) {
                const int i = pass * THREADS + threadIdx.x, row = first + i / CHUNKS;
                if (i < ROWS * CHUNKS && row < rows) place(pass, row, i % CHUNKS * 8);
            }
        };
        visit([&](int pass, int row, int col) {  // all loads first: they wait for memory together
            const uint16_t* const own = reinterpret_cast<const uint16_t*>(from + row * tensor.stride[2]);
            chunks[pass] = load_chunk<HS>(own, tensor.stride[3], col);
        });
        visit([&](int pass, int row, int col) {
            *reinterpret_cast<uint4*>(to + static_cast<long long>(row) * PACKED_COLS<HS> + col) = chunks[pass].joined();
        });
    }
    return block - B * heads * blocks;
}
