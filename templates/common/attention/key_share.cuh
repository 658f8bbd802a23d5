// Blocks of the backward pass that have the same keys, and share out the tiles of queries that see them.
#pragma once

#include "common/attention/key_block.cuh"
#include "common/attention/steps.cuh"

/// What one of SHARES blocks has of a KeyBlock's tiles: as many as any other, or one more, that follow one another, head by
/// head. Where there are fewer tiles than shares, some have none.
template <int BLOCK_N, int BLOCK_M, bool CAUSAL, int SHARES>
struct KeyShare : KeyBlock<BLOCK_N, BLOCK_M, CAUSAL, false> {
    using Whole = KeyBlock<BLOCK_N, BLOCK_M, CAUSAL, false>;
    int begin;  // the share's first tile, of all heads' one behind the other
    int end;

    __device__ __forceinline__ KeyShare(const Whole& whole, int share)
        : Whole(whole), begin(first_of_share(share)), end(first_of_share(share + 1))
    {
    }

    __device__ __forceinline__ bool has_nothing() const { return begin == end; }

    /// visit(head, tile) for each tile, in order.
    template <class Visit>
    __device__ __forceinline__ void for_each_tile(const Visit& visit) const
    {
#pragma unroll 1
        for (int head = begin / of_a_head(); head * of_a_head() < end; ++head) {
            int tile = first_of(head);
            const int tile_end = end_of(head);
#pragma unroll 1
            for (; tile < tile_end; ++tile) visit(head, tile);
        }
    }

    /// The same, knowing what is to be masked: visit(head, tile, masked, whether it is the first of all).
    template <class Visit>
    __device__ __forceinline__ void for_each_step(const Visit& visit) const
    {
        const int masked_end = this->masked_end();
        const int first_head = begin / of_a_head();
#pragma unroll 1
        for (int head = first_head; head * of_a_head() < end; ++head) {
            int tile = first_of(head);
            const int tile_end = end_of(head);
            if (head == first_head) visit(head, tile++, Known<true>(), Known<true>());
#pragma unroll 1
            for (; tile < min(tile_end, masked_end); ++tile) visit(head, tile, Known<true>(), Known<false>());
#pragma unroll 1
            for (; tile < tile_end; ++tile) visit(head, tile, Known<false>(), Known<false>());
        }
    }

  private:
    __device__ __forceinline__ int of_a_head() const { return this->tiles - this->first_tile; }

    __device__ __forceinline__ int first_of_share(int share) const
    {
        return static_cast<int>(static_cast<long long>(share) * this->heads * of_a_head() / SHARES);
    }

    /// Of a head of which the share has tiles: its first one, and that before which it ends.
    __device__ __forceinline__ int first_of(int head) const
    {
        return this->first_tile + max(0, begin - head * of_a_head());
    }
    __device__ __forceinline__ int end_of(int head) const
    {
        return min(this->tiles, this->first_tile + end - head * of_a_head());
    }
};
