// TMA: copies of boxes and of runs of bytes. Loads are made as late as the program allows: when every thread of the block
// waits for something. Until then their destination holds garbage. Stores read shared memory when their thread waits for
// that, and write when it waits for all, or ends.
#pragma once

#include <stddef.h>

#include "thread.hpp"

namespace emulator {

void tensor_load(uintptr_t to, const void* map, uintptr_t barrier, const int* at, int rank);
void bulk_load(uintptr_t to, const void* from, int bytes, uintptr_t barrier);

// Stores or, where `adds`, adds to what is there.
void tensor_store(const void* map, const int* at, int rank, uintptr_t from, bool adds);
void bulk_store(void* to, uintptr_t from, int bytes, bool adds);

// The block's number in its cluster, and the cluster's blocks.
int cluster_rank();
int cluster_blocks();

// Blocks of a cluster are executed one by one: what makes one reach another, or wait for it, fails.
void require_own_block(bool is_own);
void cluster_barrier();

void bulk_commit();
void bulk_wait(unsigned groups, bool only_reads);

}  // namespace emulator
