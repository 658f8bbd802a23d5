// Reads and writes of several neighbouring elements, with or without the hint that they are not used again: such lines
// are the first to leave the cache ("streaming").
#pragma once

#include <cstdint>

#include "common/types.cuh"

enum class Access { CACHED, STREAMING };

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

/// to[0..N) = from[0..N) as float; `from` is aligned to the instruction's width.
template <Access ACCESS, int N, class T>
__device__ __forceinline__ void read_row(const T* from, float (&to)[N])
{
    constexpr int WIDTH = vector_width<T, N>();
    using Part = Vector<T, WIDTH>;
    using Bits = typename Word<sizeof(Part)>::type;
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        union {
            Bits bits;
            Part part;
        };
        const Bits* const source = reinterpret_cast<const Bits*>(from + i);
        if constexpr (ACCESS == Access::STREAMING)
            bits = __ldcs(source);
        else
            bits = *source;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) to[i + e] = to_float(part.at[e]);
    }
}

/// to[0..N) = from[0..N) rounded to T; `to` is aligned to the instruction's width.
template <Access ACCESS, int N, class T>
__device__ __forceinline__ void write_row(T* to, const float (&from)[N])
{
    constexpr int WIDTH = vector_width<T, N>();
    using Part = Vector<T, WIDTH>;
    using Bits = typename Word<sizeof(Part)>::type;
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        Part part;
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) part.at[e] = from_float<T>(from[i + e]);
        const Bits bits = *reinterpret_cast<const Bits*>(&part);
        if constexpr (ACCESS == Access::STREAMING)
            __stcs(reinterpret_cast<Bits*>(to + i), bits);
        else
            *reinterpret_cast<Bits*>(to + i) = bits;
    }
}
