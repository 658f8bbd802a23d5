// A ring of stages that warps of a block fill for others of its warps, in place of a producer's copies.
#pragma once

#include "common/attention/ring.cuh"

/// Where `at` was one stage ago.
template <int STAGES>
__device__ __forceinline__ RingPlace<STAGES> place_before(const RingPlace<STAGES>& at)
{
    return {at.stage == 0 ? STAGES - 1 : at.stage - 1, at.stage == 0 ? at.parity ^ 1 : at.parity};
}

/// The mbarriers, as a RingBarriers has them.
template <int STAGES>
struct ExchangeBarriers : RingBarriers<STAGES> {
    /// One thread, before the block's barrier. A stage is full when `writers`, empty when `readers` warps have arrived.
    __device__ __forceinline__ void init(int writers, int readers) const
    {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(this->first + 8 * stage, writers);
            mbarrier_init(this->first + 8 * (STAGES + stage), readers);
        }
    }

    /// The stage has been read, and may be filled.
    __device__ __forceinline__ void wait_empty(const RingPlace<STAGES>& at) const
    {
        mbarrier_wait(this->empty(at), at.parity ^ 1);
    }

    /// This warp has filled its share of the stage.
    __device__ __forceinline__ void filled(const RingPlace<STAGES>& at) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(this->full(at));
    }
};
