// Reads and writes of several neighbouring elements, with or without the hint that they are not used again: such lines
// are the first to leave the cache ("streaming").
#pragma once

#include <cstdint>

#include "common/types.cuh"

enum class Access { CACHED, STREAMING };

/// A row of a matrix, read element by element. CONTIGUOUS: neighbours in the row are neighbours in memory, so that
/// places are known distances from one another and a loop over them computes no addresses.
template <class T, bool CONTIGUOUS>
struct ElementRow {
    const T* first;
    long long stride;

    __device__ __forceinline__ float operator[](int at) const { return to_float(first[CONTIGUOUS ? at : at * stride]); }
};

/// The integer type that moves BYTES bytes in one instruction.
template <int BYTES>
struct Word;
template <>
struct Word<2> {
    using type = unsigned short;
};
template <>
struct Word<4> {
    using type = unsigned int;
};
template <>
struct Word<8> {
    using type = uint2;
};
template <>
struct Word<16> {
    using type = uint4;
};

/// N elements that one instruction can move.
template <Access ACCESS, int N, class T>
__device__ __forceinline__ Vector<T, N> read_vector(const T* from)
{
    using Bits = typename Word<N * sizeof(T)>::type;
    const Bits* const source = reinterpret_cast<const Bits*>(from);
    const Bits bits = ACCESS == Access::STREAMING ? __ldcs(source) : *source;
    return *reinterpret_cast<const Vector<T, N>*>(&bits);
}

template <Access ACCESS, int N, class T>
__device__ __forceinline__ void write_vector(T* to, const Vector<T, N>& from)
{
    using Bits = typename Word<N * sizeof(T)>::type;
    const Bits bits = *reinterpret_cast<const Bits*>(&from);
    if constexpr (ACCESS == Access::STREAMING)
        __stcs(reinterpret_cast<Bits*>(to), bits);
    else
        __stwb(reinterpret_cast<Bits*>(to), bits);  // an assignment may become a store an element
}

/// to[0..N) = from[0..N) as float; `from` is aligned to the instruction's width.
template <Access ACCESS, int N, class T>
__device__ __forceinline__ void read_row(const T* from, float (&to)[N])
{
    constexpr int WIDTH = vector_width<T, N>();
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        const auto part = read_vector<ACCESS, WIDTH>(from + i);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to[i + e] = to_float(part.at[e]);
    }
}

/// to[0..N) = from[0..N) rounded to T; `to` is aligned to the instruction's width.
template <Access ACCESS, int N, class T>
__device__ __forceinline__ void write_row(T* to, const float (&from)[N])
{
    constexpr int WIDTH = vector_width<T, N>();
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        Vector<T, WIDTH> part;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) part.at[e] = from_float<T>(from[i + e]);
        write_vector<ACCESS>(to + i, part);
    }
}

/// Writes WIDTH neighbouring elements of a row of `length` from column `col` on, those that lie inside it.
template <Access ACCESS, int WIDTH, class T>
__device__ __forceinline__ void write_part(T* row, long long col_stride, int col, int length,
                                           const float (&from)[WIDTH], bool vectors)
{
    if (vectors && col + WIDTH <= length) {
        write_row<ACCESS, WIDTH>(row + col, from);
    } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
            if (col + e < length) row[(col + e) * col_stride] = from_float<T>(from[e]);
    }
}

/// Reads WIDTH neighbouring elements of a row of `length` from column `col` on; those from column `seen` on count as 0,
/// whatever is there. The row is not read where all of them do.
template <Access ACCESS, int WIDTH, class T>
__device__ __forceinline__ void read_part(const T* row, long long col_stride, int col, int seen, int length,
                                          float (&to)[WIDTH], bool vectors)
{
    if (vectors && col + WIDTH <= length) {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to[e] = 0.0f;
        if (col < seen) read_row<ACCESS, WIDTH>(row + col, to);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
            if (col + e >= seen) to[e] = 0.0f;
    } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to[e] = col + e < seen ? to_float(row[(col + e) * col_stride]) : 0.0f;
    }
}
