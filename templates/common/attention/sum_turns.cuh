// Sums in device memory that nobody clears, and that no pass of its own rounds: of the blocks that have a share of a tile,
// the first to come stores its own, others add theirs, and the last one to come takes what is there and has the sum in its
// registers. Which is which a tile's counters tell, which begin at 0 (sm_90 and later, for mbarriers).
//
// Two threads that are otherwise idle do what takes long: one calls out the turns in the block's order of tiles, one step
// ahead, and waits until a turn has come; the other tells other blocks what this one has added. A block takes its turns in
// the order of its work, and each waits for earlier turns of the same tile alone, which blocks that run have taken: none
// waits for ever.
#pragma once

#include "common/attention/accumulator_sums.cuh"
#include "common/attention/exchange_ring.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/vector_add.cuh"
#include "common/tile/rows.cuh"
#include "common/types.cuh"

/// What a block is to do with its share of a tile: whose shares come before, and after.
enum Turn { ALONE = 0, OTHERS_BEFORE = 1, OTHERS_AFTER = 2 };

/// Of a tile: in the lower 32 bits turns that have been taken, above them those that others know to have ended.
using Counters = long long;

/// Two turns under way: their mbarriers, and what each turn is. For SHARERS warps.
template <int SHARERS>
struct SumTurns {
    static constexpr int BYTES = 64;
    using Place = RingPlace<2>;
    SharedAddress first;  // two of "called", of "added" and of "told", then a word for each turn

    __device__ __forceinline__ SharedAddress called(const Place& at) const { return first + 8 * at.stage; }
    __device__ __forceinline__ SharedAddress added(const Place& at) const { return first + 16 + 8 * at.stage; }
    __device__ __forceinline__ SharedAddress told(const Place& at) const { return first + 32 + 8 * at.stage; }
    __device__ __forceinline__ SharedAddress note(const Place& at) const { return first + 48 + 4 * at.stage; }

    /// One thread, before the block's barrier.
    __device__ __forceinline__ void init() const
    {
        for (Place at; at.parity == 0; at.advance()) {
            mbarrier_init(called(at), 1);
            mbarrier_init(added(at), SHARERS);
            mbarrier_init(told(at), 1);
        }
    }

    static __device__ __forceinline__ Counters add_to(Counters* counters, Counters more)
    {
        return static_cast<Counters>(atomicAdd(reinterpret_cast<unsigned long long*>(counters), more));
    }

    /// One thread: the block's next turn at a tile that `all` blocks have a share of.
    __device__ __forceinline__ void call(Place& at, Counters* counters, int all) const
    {
        mbarrier_wait(told(at), at.parity ^ 1);
        Counters now = add_to(counters, 1);
        const int before = static_cast<int>(now);
        const bool last = before + 1 == all;
        const int needed = last ? before : min(before, 1);
        while (static_cast<int>(now >> 32) < needed) now = add_to(counters, 0);
        if (needed > 0) fence_gpu();
        store_shared_word(note(at), (before > 0 ? OTHERS_BEFORE : 0) | (last ? 0 : OTHERS_AFTER));
        mbarrier_arrive(called(at));
        at.advance();
    }

    /// Another thread: what the block has added at this turn is there for others.
    __device__ __forceinline__ void tell(Place& at, Counters* counters) const
    {
        mbarrier_wait(added(at), at.parity);
        fence_gpu();
        add_to(counters, Counters(1) << 32);
        mbarrier_arrive(told(at));
        at.advance();
    }

    /// A warp that has a share waits for its block's turn.
    __device__ __forceinline__ uint32_t wait(const Place& at) const
    {
        mbarrier_wait(called(at), at.parity);
        return load_shared_word(note(at));
    }

    /// The warp has added its share.
    __device__ __forceinline__ void end(const Place& at) const
    {
        __syncwarp();
        if (opaque_thread() % 32 == 0) mbarrier_arrive(added(at));
    }
};

/// A thread's accumulators of a warp group: stored, added, or made the whole sum, as the turn says. `part`:
/// of AccumulatorSums.
template <int REGISTERS>
__device__ __forceinline__ void take_turn(uint32_t turn, float* part, float (&x)[REGISTERS])
{
    float4* const own = reinterpret_cast<float4*>(part) + opaque_thread() % 128;
    if (turn & OTHERS_AFTER) {
        if (turn & OTHERS_BEFORE) {
#pragma unroll
            for (int c = 0; c < REGISTERS / 4; ++c)
                add_four(own + 128 * c, x[4 * c], x[4 * c + 1], x[4 * c + 2], x[4 * c + 3]);
        } else {
#pragma unroll
            for (int c = 0; c < REGISTERS / 4; ++c)
                own[128 * c] = make_float4(x[4 * c], x[4 * c + 1], x[4 * c + 2], x[4 * c + 3]);
        }
    } else if (turn & OTHERS_BEFORE) {
#pragma unroll
        for (int c = 0; c < REGISTERS / 4; ++c) {
            const float4 there = __ldcg(own + 128 * c);
            x[4 * c] += there.x;
            x[4 * c + 1] += there.y;
            x[4 * c + 2] += there.z;
            x[4 * c + 3] += there.w;
        }
    }
}

/// Scales, rounds and writes a warp group's accumulators: 64 rows of a tensor of `rows` from `first` on, columns from `col`
/// on of its HS. Where some of a warp are not finite, they are marked: a NaN in its first row and column.
template <int HS, class T, int REGISTERS>
__device__ __forceinline__ void store_accumulators_marked(float (&x)[REGISTERS], float scale, const View<T, 4>& to,
                                                          const RowPlace& first, int rows, int col)
{
    float zero = 0.0f;
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) zero = fmaf(x[i], 0.0f, zero);
    if (__any_sync(0xffffffff, zero != 0.0f) && opaque_thread() % 32 == 0) x[0] = not_a_number();
    const int thread = opaque_thread();  // what follows is computed here: registers are dear where the caller's loop is
    const int lane = thread % 32, row = first.t + thread % 128 / 32 * 16 + lane / 4;
    const bool vectors = opaque(static_cast<int>(to.stride[3])) == 1 && allows_vectors<2>(to);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row + 8 * half >= rows) continue;
        T* const own = row_of(to, RowPlace{first.b, first.h, row + 8 * half});
#pragma unroll
        for (int c = 0; c < REGISTERS / 4; ++c) {
            const int at = col + 8 * c + lane % 4 * 2;
            if (col + 8 * c >= HS) continue;
            const uint32_t pair = pack<T>(x[4 * c + 2 * half] * scale, x[4 * c + 2 * half + 1] * scale);
            if (vectors) {
                *reinterpret_cast<uint32_t*>(own + at) = pair;
            } else {
                own[at * to.stride[3]] = half_of<T>(pair, 0);
                own[(at + 1) * to.stride[3]] = half_of<T>(pair, 1);
            }
        }
    }
}
