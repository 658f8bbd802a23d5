// The steps of a block: over the tiles that its rows see, of which those at one end need a mask.
#pragma once

/// A flag whose value the compiler knows.
template <bool VALUE>
struct Known {
    __device__ constexpr operator bool() const { return VALUE; }
};

/// step(rest..., i, masked) for i from 0 to count - 1; the first `first` of them are masked if MASKED_FIRST, else the others
/// are. PEEL: in two loops, whose bodies know whether they mask; else in one that asks.
template <bool PEEL, bool MASKED_FIRST, class Step, class... Rest>
__device__ __forceinline__ void for_each_step(int count, int first, const Step& step, const Rest&... rest)
{
    if constexpr (PEEL) {
        int i = 0;
#pragma unroll 1
        for (; i < first; ++i) step(rest..., i, Known<MASKED_FIRST>());
#pragma unroll 1
        for (; i < count; ++i) step(rest..., i, Known<!MASKED_FIRST>());
    } else {
#pragma unroll 1
        for (int i = 0; i < count; ++i) step(rest..., i, MASKED_FIRST ? i < first : i >= first);
    }
}

/// step(rest..., row, masked) for tiles of ROWS rows between `begin` and `end`, from that at `row` on, the first of them or,
/// REVERSE, the last; those that begin before `masked_end` are masked. PEEL as above.
template <bool PEEL, bool REVERSE, int ROWS, class Step, class... Rest>
__device__ __forceinline__ void for_each_tile(int row, int begin, int end, int masked_end, const Step& step,
                                              const Rest&... rest)
{
    if constexpr (PEEL && REVERSE) {
#pragma unroll 1
        for (; row >= max(begin, masked_end); row -= ROWS) step(rest..., row, Known<false>());
#pragma unroll 1
        for (; row >= begin; row -= ROWS) step(rest..., row, Known<true>());
    } else if constexpr (PEEL) {
#pragma unroll 1
        for (; row < min(end, masked_end); row += ROWS) step(rest..., row, Known<true>());
#pragma unroll 1
        for (; row < end; row += ROWS) step(rest..., row, Known<false>());
    } else if constexpr (REVERSE) {
#pragma unroll 1
        for (; row >= begin; row -= ROWS) step(rest..., row, row < masked_end);
    } else {
#pragma unroll 1
        for (; row < end; row += ROWS) step(rest..., row, row < masked_end);
    }
}
