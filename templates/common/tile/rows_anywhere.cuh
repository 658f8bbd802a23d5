// Rows of 16-bit elements that begin at any element, as those of heads of an odd size: to tiles of slabs by TMA, and from
// such tiles by ordinary stores, which leave neighbouring rows alone. Boxes of TMA begin at multiples of 16 bytes, so a tile
// has its rows some columns on, the matrix's shift: before them lies what comes before in memory, behind them are zeros. So
// tiles are MOST_SHIFT columns wider. A sum of products along the columns is right where both tiles have one shift and one of
// them zeros before its rows, `shift_rows`; sums along the rows come out shifted.
#pragma once

#include "common/ptx/opaque.cuh"
#include "common/ptx/shared_vectors.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/tensor_map.cuh"
#include "common/tile/slab_tile.cuh"
#include "common/view.cuh"

constexpr int MOST_SHIFT = 7;  // elements: eight are 16 bytes

/// The maps of such a tensor, one for each shift: the first dimension of each ends so many columns later, so that what lies
/// behind a row's end is out of the tensor and arrives as zeros. The dimensions: columns, rows of a matrix, 2^20 steps of 16
/// bytes, so many steps at once.
struct TensorMaps {
    TensorMap at[MOST_SHIFT + 1];
};

/// Where a matrix begins: `shift` elements behind `step` + 2^20 * `leap` times 16 bytes, from the multiple of 16 bytes on at or
/// before the tensor's first element.
struct MatrixStart {
    int shift;
    int step;
    int leap;
};

template <class T>
__device__ __forceinline__ MatrixStart matrix_start(const View<T, 4>& tensor, int b, int h)
{
    static_assert(sizeof(T) == 2, "eight elements are 16 bytes");
    const long long before = reinterpret_cast<uintptr_t>(tensor.data) % 16 / 2;
    const long long elements = before + opaque(b) * tensor.stride[0] + opaque(h) * tensor.stride[1];  // not kept meanwhile
    return {static_cast<int>(elements & 7), static_cast<int>(elements >> 3 & 0xfffff), static_cast<int>(elements >> 23)};
}

/// Starts to load a tile, from row `row` of a matrix on.
template <class Tile>
__device__ __forceinline__ void load_slabs(SharedAddress tile, const TensorMaps& maps, SharedAddress full,
                                           const MatrixStart& start, int row)
{
#pragma unroll
    for (int slab = 0; slab < Tile::SLABS; ++slab)
        tensor_load(tile + slab * Tile::SLAB_BYTES, maps.at[start.shift], full,
                    {slab * Tile::SLAB, row, start.step, start.leap});
}

/// 8 elements of a tile's row from column `col` on, which is any. The row has HS columns from column `shift` on; elements
/// that are not its own are whatever.
template <class Tile, int HS>
__device__ __forceinline__ void load_elements(SharedAddress tile, int row, int col, int shift, uint32_t (&to)[4])
{
    const int chunk = col >> 3, last = (shift + HS - 1) >> 3;
    uint32_t low[4], high[4];
    load_shared(low, tile + Tile::offset(row, min(max(chunk, 0), last) * 8));
    load_shared(high, tile + Tile::offset(row, min(max(chunk + 1, 0), last) * 8));
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = low[i], words[4 + i] = high[i];
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = (col & 4) != 0 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = (col & 2) != 0 ? words[i + 1] : words[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = (col & 1) != 0 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
}

/// Zeros in the place of those of 8 elements, of which the first has this number, that are before 0 or from `end` on.
__device__ __forceinline__ void keep_elements(uint32_t (&words)[4], int number, int end)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int left = number + 2 * i, right = left + 1;
        words[i] &= (0 <= left && left < end ? 0xffffu : 0u) | (0 <= right && right < end ? 0xffff0000u : 0u);
    }
}

/// A warp gives 16 rows of HS elements of a tile of COLS columns, from row `row` on, which begin `from` columns on, the shift
/// `to`, and zeros around them.
template <class Tile, int COLS, int HS>
__device__ __forceinline__ void shift_rows(SharedAddress tile, int row, int from, int to)
{
    constexpr int CHUNKS = COLS / 8, PASSES = CHUNKS / 2;  // 16 * CHUNKS by 32 lanes
    const int lane = threadIdx.x % 32, own = row + lane % 16;
    if (from == to) {  // zeros before them are all that is missing
        if (lane >= 16 || to == 0) return;
        uint32_t words[4];
        load_shared(words, tile + Tile::offset(own, 0));
        keep_elements(words, -to, HS);
        store_shared(tile + Tile::offset(own, 0), words);
        return;
    }
    uint32_t words[PASSES][4];
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass) {
        const int number = (pass * 2 + lane / 16) * 8 - to;
        load_elements<Tile, HS>(tile, own, number + from, from, words[pass]);
        keep_elements(words[pass], number, HS);
    }
    __syncwarp();
#pragma unroll
    for (int pass = 0; pass < PASSES; ++pass)
        store_shared(tile + Tile::offset(own, (pass * 2 + lane / 16) * 8), words[pass]);
}

/// A warp writes 16 rows of a tile, from row `row` on, HS columns from column `shift` on of the first `count` of them, to a
/// matrix. `to`: where the first one goes. By 16 bytes at their multiples, single elements at a row's ends.
template <class Tile, int HS, class T>
__device__ __forceinline__ void write_rows(SharedAddress tile, int row, int shift, T* to, long long row_stride,
                                           long long col_stride, int count)
{
    constexpr int CHUNKS = (HS + MOST_SHIFT + 7) / 8;  // of 16 bytes that hold elements of a row, wherever it begins
    constexpr int PASSES = (16 * CHUNKS + 31) / 32;
    const int lane = opaque_thread() % 32;  // computed here: registers are dear where the caller's loop is
    uint16_t* const rows = reinterpret_cast<uint16_t*>(to);
    count = min(count, 16);
    if (col_stride != 1) {
#pragma unroll 1
        for (int i = lane; i < count * HS; i += 32) {
            const int col = i % HS + shift;
            const uint32_t word = load_shared_word(tile + Tile::offset(row + i / HS, col & ~1));
            rows[i / HS * row_stride + i % HS * col_stride] = static_cast<uint16_t>(word >> col % 2 * 16);
        }
        return;
    }
#pragma unroll 2
    for (int pass = 0; pass < PASSES; ++pass) {  // whole chunks
        const int number = pass * 32 + lane, own = number / CHUNKS;
        uint16_t* const first = rows + own * row_stride;
        const int col = number % CHUNKS * 8 - static_cast<int>(reinterpret_cast<uintptr_t>(first) % 16 / 2);
        if (own >= count || col < 0 || col + 8 > HS) continue;
        uint32_t words[4];
        load_elements<Tile, HS>(tile, row + own, col + shift, shift, words);
        *reinterpret_cast<uint4*>(first + col) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    const int own = lane % 16;  // two lanes a row: what is before its first whole chunk, and behind its last
    if (own >= count) return;
    uint16_t* const first = rows + own * row_stride;
    const int before = static_cast<int>(reinterpret_cast<uintptr_t>(first) % 16 / 2), last = (before + HS - 1) / 8 * 8 - before;
    const int col = lane < 16 ? -before : last;
    if (lane >= 16 && last == -before) return;  // the same chunk
    if (col >= 0 && col + 8 <= HS) return;
    uint32_t words[4];
    load_elements<Tile, HS>(tile, row + own, col + shift, shift, words);
#pragma unroll
    for (int e = 0; e < 8; ++e)
        if (col + e >= 0 && col + e < HS) first[col + e] = static_cast<uint16_t>(words[e / 2] >> e % 2 * 16);
}

/// Four lanes write 32 columns of one row of HS, from column `col` on, if it `exists`: of each 8 columns a lane has the pair
/// that the matrix products leave it. By words where they begin at any element: a lane then has half of one from the lane
/// before it.
template <int HS, class T>
__device__ __forceinline__ void write_pairs(const uint32_t (&pairs)[4], T* to, long long col_stride, int col, bool exists)
{
    const int lane = threadIdx.x % 32;
    const bool contiguous = col_stride == 1;
    const bool shifted = contiguous && reinterpret_cast<uintptr_t>(to) % 4 != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t given = lane % 4 < 3 ? pairs[i] : i > 0 ? pairs[i - 1] : 0;
        const uint32_t before = __shfl_sync(0xffffffff, given, lane % 4 > 0 ? lane - 1 : lane + 3);
        const int own = col + 8 * i + lane % 4 * 2;  // of the pair
        const bool is_first = i == 0 && lane % 4 == 0, is_last = i == 3 && lane % 4 == 3;
        if (!exists || own >= HS) continue;
        uint16_t* const pair = reinterpret_cast<uint16_t*>(to) + own * col_stride;
        if (contiguous && !shifted && own + 1 < HS) {
            *reinterpret_cast<uint32_t*>(pair) = pairs[i];
        } else if (shifted && !is_first) {
            *reinterpret_cast<uint32_t*>(pair - 1) = before >> 16 | pairs[i] << 16;
            if (own + 1 < HS && (is_last || own + 2 >= HS)) pair[1] = static_cast<uint16_t>(pairs[i] >> 16);
        } else {
            pair[0] = static_cast<uint16_t>(pairs[i]);
            const bool in_next = shifted && !is_last && own + 2 < HS;  // in the word of the lane behind
            if (own + 1 < HS && !in_next) pair[col_stride] = static_cast<uint16_t>(pairs[i] >> 16);
        }
    }
}
