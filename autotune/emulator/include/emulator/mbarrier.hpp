// mbarriers, and the fences between ordinary accesses and asynchronous ones.
#pragma once

#include "thread.hpp"

namespace emulator {

// Addresses are shared memory's, as `__cvta_generic_to_shared` gives them.
void mbarrier_init(uintptr_t barrier, unsigned arrivals);

// Expects `bytes` more from copies, then counts one arrival.
void mbarrier_arrive(uintptr_t barrier, unsigned bytes);

bool mbarrier_try_wait(uintptr_t barrier, unsigned parity);
void mbarrier_wait(uintptr_t barrier, unsigned parity, Place place = EMULATOR_HERE);

// `fence.mbarrier_init`: barriers that the calling thread has initialised may be given to copies.
void fence_mbarrier_init();

// `fence.proxy.async`: what the calling thread has written to shared memory may be read by copies and by wgmma.
void fence_async();

}  // namespace emulator
