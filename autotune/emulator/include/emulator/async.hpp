// Asynchronous copies to shared memory: made as late as the program allows, when the copying thread waits for them. Until
// then the destination holds garbage, so that a copy that is not waited for shows.
#pragma once

#include <stddef.h>

namespace emulator {

// Copies the first `valid` bytes; the rest of `bytes` become 0. Both ends must be aligned to `bytes`, as on the device.
void copy_async(void* to, const void* from, size_t bytes, size_t valid);

// Ends a group of the calling thread's copies; an empty group counts too.
void commit_copies();

// Waits until at most the calling thread's latest `groups` groups are under way.
void wait_for_copies(unsigned groups);

}  // namespace emulator
