// A step of the backward pass for a warp that owns queries: they meet a tile of keys, and dS adds to dQ in registers.
// 16-bit operands on tensor cores.
#pragma once

#include "common/attention/row_sums.cuh"
#include "common/attention/score.cuh"
#include "common/attention/score_tiles.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/warp/products.cuh"

/// A tile of KEYS keys, a chunk of CHUNK of them at a time, for the 16 * M queries of a warp. V and dO lie in ValueTiles.
template <class T, int CHUNK, int KEYS, bool CAUSAL, class Tile, int M, bool Q_IN_REGISTERS, bool DO_IN_REGISTERS,
          class ValueTile = Tile>
struct QueryStep {
    static constexpr int CHUNKS = KEYS / CHUNK;
    using Products = float[M][CHUNK / 8][4];  // S or dP: own queries by a chunk
    using Gradients = float[M][Tile::COLS / 8][4];

    const Scores<CAUSAL>& scores;
    const OwnRows<Tile, M, Q_IN_REGISTERS>& queries;
    const OwnRows<ValueTile, M, DO_IN_REGISTERS>& douts;
    const RowSums (&sums)[2 * M];  // of the lane's queries
    Gradients& dq;
    int rows_first;  // the lane's row of a tile, for ldmatrix with rows first
    int cols_first;  // and with columns first
    SharedAddress k;
    SharedAddress v;
    int value_cols_first = cols_first;

    /// All chunks. `query`: the warp's first one. `key`: the tile's first. `masked`: some pairs are hidden. OVERLAPPED:
    /// where none are, tensor cores multiply the next chunk while one is weighed.
    template <bool OVERLAPPED, class Masked>
    __device__ __forceinline__ void run(int query, int key, Masked masked) const
    {
        if constexpr (OVERLAPPED) {
            if (!masked) overlapped();
        }
#pragma unroll
        for (int first = 0; (!OVERLAPPED || masked) && first < KEYS; first += CHUNK) {
            if (masked && key + first >= scores.keys_seen(query + 16 * M - 1)) continue;
            Products s;
            Products dp;
            multiply(s, dp, first);
            if (masked) hide_keys(s, scores, query + static_cast<int>(threadIdx.x) % 32 / 4, key + first);
            pass_on(s, dp, first);
        }
    }

    /// S and dP of a chunk.
    __device__ __forceinline__ void multiply(Products& s, Products& dp, int first) const
    {
        multiply_over_head<T>(s, queries, k + Tile::bytes(first) + cols_first);
        multiply_over_head<T>(dp, douts, v + ValueTile::bytes(first) + value_cols_first);
    }

    /// dP becomes dS; dQ += dS K.
    __device__ __forceinline__ void pass_on(const Products& s, Products& dp, int first) const
    {
        weigh_rows<false>(s, dp, scores, sums);
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            uint32_t a[M][4];
            as_operand<T>(a, dp, i / 8);
            multiply_over_rows<T, Tile>(dq, a, k + Tile::bytes(first + i) + rows_first);
        }
    }

    __device__ __forceinline__ void overlapped() const
    {
        Products s[2];
        Products dp[2];
        multiply(s[0], dp[0], 0);
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            if (c + 1 < CHUNKS) multiply(s[(c + 1) % 2], dp[(c + 1) % 2], (c + 1) * CHUNK);
            pass_on(s[c % 2], dp[c % 2], c * CHUNK);
        }
    }
};
