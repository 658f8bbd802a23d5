// A ring of stages that a producer fills and consumers empty, each with an mbarrier for "full" and one for "empty".
#pragma once

#include "common/ptx/mbarrier.cuh"

/// Where one side of a ring is. Both sides take the stages in the same order.
template <int STAGES>
struct RingPlace {
    int stage = 0;
    int parity = 0;  // of the phase of "full" in which the stage is filled; "empty" is one phase behind

    __device__ __forceinline__ void advance()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/// The mbarriers of a ring, one behind the other from `first` on: STAGES of "full", then STAGES of "empty".
template <int STAGES>
struct RingBarriers {
    static constexpr int BYTES = 16 * STAGES;
    SharedAddress first;

    __device__ __forceinline__ SharedAddress full(const RingPlace<STAGES>& at) const { return first + 8 * at.stage; }
    __device__ __forceinline__ SharedAddress empty(const RingPlace<STAGES>& at) const
    {
        return first + 8 * (STAGES + at.stage);
    }

    /// One thread, before the block's barrier. A stage is empty when `readers` have arrived.
    __device__ __forceinline__ void init(int readers) const
    {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(first + 8 * stage, 1);
            mbarrier_init(first + 8 * (STAGES + stage), readers);
        }
    }

    __device__ __forceinline__ void wait_full(const RingPlace<STAGES>& at) const { mbarrier_wait(full(at), at.parity); }

    /// The producer's turn: the stage has been read, and is to get `bytes`.
    __device__ __forceinline__ void begin_fill(const RingPlace<STAGES>& at, int bytes) const
    {
        mbarrier_wait(empty(at), at.parity ^ 1);
        mbarrier_arrive_expect(full(at), bytes);
    }

    /// This warp has read the stage.
    __device__ __forceinline__ void release(const RingPlace<STAGES>& at) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(at));
    }
};
