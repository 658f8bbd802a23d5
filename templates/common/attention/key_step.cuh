// A step of the backward pass for a warp that owns keys: they meet a tile of queries, and S and dP become P and dS, which
// add to dV and dK or go on to the warps that do. 16-bit operands on tensor cores; scores are transposed, keys by queries,
// so that P and dS are operands of the next products where they lie.
#pragma once

#include "common/attention/pair_tiles.cuh"
#include "common/attention/score.cuh"
#include "common/attention/score_tiles.cuh"
#include "common/ptx/shared_address.cuh"
#include "common/types.cuh"
#include "common/warp/matrix_lanes.cuh"
#include "common/warp/products.cuh"

/// TOGETHER: S and dP of a chunk are in registers at the same time. OVERLAPPED: tensor cores multiply the next chunk while
/// one is weighed. IN_TURN: dP takes the registers of S, which has become P and is rounded.
enum class Schedule { TOGETHER, OVERLAPPED, IN_TURN };

/// STAY: a warp multiplies with its P and dS itself. DS_COPIED: others need dS, too. CHANGE_WARPS: other warps multiply.
enum class PairRoute { STAY, DS_COPIED, CHANGE_WARPS };

/// A warp's place in a block of keys, 16 * M of which SHARERS warps own, and where its lanes read tiles, for ldmatrix: of Q
/// and K, and ValueTiles, of V and dO.
template <class Tile, int M, int SHARERS, class ValueTile = Tile>
struct KeyLanes {
    int lane;
    int row;   // the warp's first key in the block
    int part;  // its number among the warps that own these keys
    int rows_first = ldmatrix_rows_first<Tile>();
    int cols_first = ldmatrix_cols_first<Tile>();
    int value_rows_first = rows_first;
    int value_cols_first = cols_first;

    __device__ __forceinline__ KeyLanes(int warp, int lane_)
        : lane(lane_), row(warp / SHARERS * 16 * M), part(warp % SHARERS)
    {
        if constexpr (ValueTile::ROW_BYTES != Tile::ROW_BYTES) {
            value_rows_first = ldmatrix_rows_first<ValueTile>();
            value_cols_first = ldmatrix_cols_first<ValueTile>();
        }
    }
};

/// The step: a tile of queries, a chunk of CHUNK of them at a time, for the 16 * M keys of a warp and its part of the
/// chunks. Sums, ValueSums: a warp's fragments of dK and of dV.
template <class T, int CHUNK, int SHARERS, PairRoute ROUTE, bool CAUSAL, class Tile, class PairTile, bool STMATRIX, int M,
          bool K_IN_REGISTERS, bool V_IN_REGISTERS, class Sums, class ValueTile = Tile, class ValueSums = Sums>
struct KeyStep {
    static constexpr bool CHANGE_WARPS = ROUTE == PairRoute::CHANGE_WARPS;
    static constexpr int CHUNKS = PairTile::COLS / CHUNK / SHARERS;  // of the tile, this warp's
    using Products = float[M][CHUNK / 8][4];                         // S or dP: own keys by a chunk
    using Pairs = uint32_t[M][4];                                    // P or dS, rounded, of 16 queries

    const Scores<CAUSAL>& scores;
    const OwnRows<Tile, M, K_IN_REGISTERS>& keys;
    const OwnRows<ValueTile, M, V_IN_REGISTERS>& values;
    const KeyLanes<Tile, M, SHARERS, ValueTile>& lanes;
    const PairWriter<PairTile, STMATRIX>& writer;
    int pair_rows_first;  // the lane's row of a tile of pairs, where these change warps
    Sums& dk;             // where P and dS stay with the warp, it adds to these
    ValueSums& dv;
    SharedAddress q;
    SharedAddress dout;
    const float4* sums;  // of two neighbouring queries each
    unsigned char* p;    // where P and dS change warps, it writes them here
    unsigned char* ds;

    /// All of the warp's chunks. `key`: its first one. `query`: the tile's first. `masked`: some pairs are hidden.
    template <Schedule SCHEDULE, class Masked>
    __device__ __forceinline__ void run(int key, int query, Masked masked) const
    {
        constexpr bool OVERLAPPED = SCHEDULE == Schedule::OVERLAPPED;
        if constexpr (OVERLAPPED) {
            if (!masked) overlapped();
        }
#pragma unroll
        for (int c = 0; (!OVERLAPPED || masked) && c < CHUNKS; ++c) {
            const int first = chunk(c);
            if (masked && query + first + CHUNK <= scores.first_query(key)) {
                pass_on_zeros(first);
                continue;
            }
            const auto hide = [&](Products& s) {
                if (masked) hide_queries<false>(s, scores, key + lanes.lane / 4, query + first, lanes.lane);
            };
            if constexpr (SCHEDULE == Schedule::IN_TURN)
                in_turn(first, hide);
            else
                together(first, hide);
        }
    }

    /// First query in the tile of the warp's c-th chunk.
    __device__ __forceinline__ int chunk(int c) const { return (c * SHARERS + lanes.part) * CHUNK; }

    /// S and dP of a chunk.
    __device__ __forceinline__ void multiply(Products& s, Products& dp, int first) const
    {
        multiply_over_head<T>(s, keys, q + Tile::bytes(first) + lanes.cols_first);
        multiply_over_head<T>(dp, values, dout + ValueTile::bytes(first) + lanes.value_cols_first);
    }

    /// dV += P^T dO for 16 queries, or on to the warps that do.
    __device__ __forceinline__ void pass_on_p(const Pairs& a, int first) const
    {
        if constexpr (CHANGE_WARPS)
            writer.write(p, a, first);
        else
            multiply_over_rows<T, ValueTile>(dv, a, dout + ValueTile::bytes(first) + lanes.value_rows_first);
    }

    /// dK += dS^T Q for 16 queries, and on to the warps that need dS.
    __device__ __forceinline__ void pass_on_ds(const Pairs& a, int first) const
    {
        if constexpr (ROUTE != PairRoute::STAY) writer.write(ds, a, first);
        if constexpr (!CHANGE_WARPS) multiply_over_rows<T, Tile>(dk, a, q + Tile::bytes(first) + lanes.rows_first);
    }

    __device__ __forceinline__ void pass_on(const Products& weights, const Products& gradients, int first) const
    {
        Pairs a;
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            as_operand<T>(a, weights, i / 8);
            pass_on_p(a, first + i);
        }
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            as_operand<T>(a, gradients, i / 8);
            pass_on_ds(a, first + i);
        }
    }

    /// A chunk of which no query sees a key of the warp.
    __device__ __forceinline__ void pass_on_zeros(int first) const
    {
        if constexpr (ROUTE != PairRoute::STAY) {
            const Pairs zeros = {};
#pragma unroll
            for (int i = 0; i < CHUNK; i += 16) {
                if constexpr (CHANGE_WARPS) writer.write(p, zeros, first + i);
                writer.write(ds, zeros, first + i);
            }
        }
    }

    __device__ __forceinline__ void overlapped() const
    {
        Products s[2];
        Products dp[2];
        multiply(s[0], dp[0], chunk(0));
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            if (c + 1 < CHUNKS) multiply(s[(c + 1) % 2], dp[(c + 1) % 2], chunk(c + 1));
            weigh_columns<false>(s[c % 2], dp[c % 2], scores, sums, chunk(c), lanes.lane);
            pass_on(s[c % 2], dp[c % 2], chunk(c));
        }
    }

    template <class Hide>
    __device__ __forceinline__ void together(int first, const Hide& hide) const
    {
        Products s;
        Products dp;
        multiply(s, dp, first);
        hide(s);
        weigh_columns<false>(s, dp, scores, sums, first, lanes.lane);
        pass_on(s, dp, first);
    }

    template <class Hide>
    __device__ __forceinline__ void in_turn(int first, const Hide& hide) const
    {
        Products s;
        multiply_over_head<T>(s, keys, q + Tile::bytes(first) + lanes.cols_first);
        hide(s);
        weigh_columns<false>(s, scores, sums, first, lanes.lane);
        Pairs rounded[CHANGE_WARPS ? 1 : CHUNK / 16];  // P; CHANGE_WARPS: read again from where it was passed on
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            as_operand<T>(rounded[CHANGE_WARPS ? 0 : i / 16], s, i / 8);
            pass_on_p(rounded[CHANGE_WARPS ? 0 : i / 16], first + i);
        }
        if constexpr (CHANGE_WARPS) __syncwarp();  // this warp's P is there
        multiply_over_head<T>(s, values, dout + ValueTile::bytes(first) + lanes.value_cols_first);  // dP
#pragma unroll
        for (int i = 0; i < CHUNK; i += 16) {
            Pairs& a = rounded[CHANGE_WARPS ? 0 : i / 16];
            if constexpr (CHANGE_WARPS)
                read_pairs<PairTile>(a, shared_address(p) + PairTile::bytes(lanes.row) + pair_rows_first, first + i);
            differentiate(s, a, first, i);
            as_operand<T>(a, s, i / 8);
            pass_on_ds(a, first + i);
        }
    }

    /// dP becomes dS, in 16 queries of a chunk from `i` on, from rounded P.
    __device__ __forceinline__ void differentiate(Products& dp, const Pairs& rounded, int first, int i) const
    {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const float4 both = sums[(first + i + 8 * n) / 2 + lanes.lane % 4];
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float2 weights = unpack_pair<T>(rounded[m][2 * n + half]);
                    float* const pair = dp[m][i / 8 + n] + 2 * half;
                    pair[0] = weights.x * (pair[0] - both.y);
                    pair[1] = weights.y * (pair[1] - both.w);
                }
        }
    }
};
