// Which tile of which (batch, head) matrix a block takes, and after which one, where blocks take several.
#pragma once

/// n / d, without a division: `inverse` is 2^40 / d, rounded up. Exact while n * d is under 2^40.
__device__ __forceinline__ int divided(int n, long long inverse) { return static_cast<int>(n * inverse >> 40); }

struct Work {
    int matrix;  // batch * heads + head
    int tile;    // of its rows
};

/// Tiles of `heads` matrices in an order in which those that run at the same time share what they read: HEADS_AT_ONCE
/// matrices (0: all; else a divisor of their number) take turns, tile by tile, before the next ones begin. HEAVY_FIRST:
/// from the last tile to the first.
template <int HEADS_AT_ONCE, bool HEAVY_FIRST>
struct WorkOrder {
    int tiles;          // of a matrix
    int heads;          // matrices in all
    long long inverse;  // 2^40 / what `at` divides by, rounded up: HEADS_AT_ONCE ? tiles : heads

    __device__ __forceinline__ int count() const { return tiles * heads; }

    __device__ __forceinline__ Work at(int index) const
    {
        Work work;
        if constexpr (HEADS_AT_ONCE == 0) {
            work.tile = divided(index, inverse);
            work.matrix = index - work.tile * heads;
        } else {
            const int turn = index / HEADS_AT_ONCE;
            const int group = divided(turn, inverse);
            work.tile = turn - group * tiles;
            work.matrix = group * HEADS_AT_ONCE + index % HEADS_AT_ONCE;
        }
        if constexpr (HEAVY_FIRST) work.tile = tiles - 1 - work.tile;
        return work;
    }
};

/// What a block takes in its round `round`, of gridDim.x blocks. SNAKE: every other round the other way round, so that
/// no block always gets the heavier ones. At or beyond the count of all: nothing, and nothing later.
template <bool SNAKE>
__device__ __forceinline__ int work_of_round(int round)
{
    const int block = SNAKE && round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return round * gridDim.x + block;
}
