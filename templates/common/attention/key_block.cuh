// What a block of the backward pass works on that keeps keys: which tiles of queries, in which order.
#pragma once

#include "common/attention/score.cuh"
#include "common/attention/steps.cuh"
#include "common/attention/work_order.cuh"
#include "common/ptx/opaque.cuh"

/// BLOCK_N keys of a key head, and the tiles of BLOCK_M queries that see any of them, head by head of those that share the
/// keys. STAGGER: blocks of a head begin at different tiles, and come to their first ones last.
template <int BLOCK_N, int BLOCK_M, bool CAUSAL, bool STAGGER>
struct KeyBlock {
    static_assert(!CAUSAL || !STAGGER, "with a causal mask the masked tiles come first");
    Scores<CAUSAL> scores;
    int NH;
    int batch;
    int key_head;
    int heads;       // that share the key head
    int key;         // the first
    int tiles;       // of a head's queries
    int first_tile;  // that sees any of the keys
    int start_tile;

    /// `work`: the block's among `blocks` of a key head.
    __device__ __forceinline__ KeyBlock(const Scores<CAUSAL>& scores_, int NH_, int NH_kv, const Work& work, int blocks)
        : scores(scores_), NH(NH_), batch(work.matrix / NH_kv), key_head(work.matrix - batch * NH_kv), heads(NH / NH_kv),
          key(work.tile * BLOCK_N), tiles((scores.T + BLOCK_M - 1) / BLOCK_M),
          first_tile(scores.first_query(key) / BLOCK_M),
          start_tile(STAGGER ? static_cast<int>(static_cast<long long>(work.tile) * tiles / blocks) : first_tile)
    {
    }

    /// A tile's number among those of all matrices; `head`: of those that share the key head.
    __device__ __forceinline__ long long number(int head, int tile) const
    {
        return (static_cast<long long>(batch) * NH + key_head * heads + head) * tiles + tile;
    }

    /// How many of the `blocks` of a key head have keys that queries of a tile see.
    __device__ __forceinline__ int sharers(int tile, int blocks) const
    {
        return min(blocks, (scores.keys_seen((tile + 1) * BLOCK_M - 1) + BLOCK_N - 1) / BLOCK_N);
    }

    /// Tiles before this one have queries that do not see all keys of the block.
    __device__ __forceinline__ int masked_end() const
    {
        if (key + BLOCK_N > scores.T_kv) return tiles;
        return CAUSAL ? (scores.first_query(key + BLOCK_N - 1) + BLOCK_M - 1) / BLOCK_M : 0;
    }

    /// visit(head, tile) for each tile, in order.
    template <class Visit>
    __device__ __forceinline__ void for_each_tile(const Visit& visit) const
    {
#pragma unroll 1
        for (int head = 0; head < heads; ++head) {
            int tile = start_tile;
#pragma unroll 1
            for (int left = tiles - first_tile; left > 0; --left) {
                visit(head, tile);
                if (++tile == tiles) tile = 0;
            }
        }
    }

    /// The same, knowing what is to be masked: visit(head, tile, masked, whether it is the first of all).
    template <class Visit>
    __device__ __forceinline__ void for_each_step(const Visit& visit) const
    {
        const int end = masked_end();
#pragma unroll 1
        for (int head = 0; head < heads; ++head) {
            int tile = start_tile;
            int left = tiles - first_tile;
            const auto next = [&] {
                --left;
                if (++tile == tiles) tile = 0;
            };
            if (head == 0) {
                visit(head, tile, Known<true>(), Known<true>());
                next();
            }
#pragma unroll 1
            for (; left > 0 && tile < end; next()) visit(head, tile, Known<true>(), Known<false>());
#pragma unroll 1
            for (; left > 0; next()) visit(head, tile, Known<false>(), Known<false>());
        }
    }
};

/// Of a KeyBlock's tiles the first one's number, among those of all matrices. Computed where it is asked for: for kernels
/// whose registers are few.
template <class Block>
__device__ __forceinline__ int first_number(const Block& block)
{
    return (opaque(block.batch) * block.NH + block.key_head * block.heads) * block.tiles;
}
