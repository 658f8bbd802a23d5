// Clusters (sm_90 and later): neighbouring blocks that run at the same time and reach one another's shared memory. Front
// matter says how many a launch has (`cluster` of [[launch]]). Addresses are the same in every block: an mbarrier or a tile of another block is
// named by the address that this block's own has, and the block's rank.
#pragma once

#include "common/ptx/tensor_copy.cuh"

/// The block's number in its cluster.
__device__ __forceinline__ int cluster_rank()
{
#ifdef AUTOTUNE_EMULATOR
    return emulator::cluster_rank();
#else
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return int(rank);
#endif
}

/// How many blocks the cluster has.
__device__ __forceinline__ int cluster_blocks()
{
#ifdef AUTOTUNE_EMULATOR
    return emulator::cluster_blocks();
#else
    uint32_t blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return int(blocks);
#endif
}

/// A barrier of all threads of the cluster. Also before the first access to another block's memory, and before a block ends
/// whose memory others may still reach.
__device__ __forceinline__ void cluster_sync()
{
#ifdef AUTOTUNE_EMULATOR
    emulator::cluster_barrier();
    __syncthreads();
#else
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// One arrival at the mbarrier that lies at this address in block `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_remote(SharedAddress barrier, int rank)
{
#ifdef AUTOTUNE_EMULATOR
    emulator::require_own_block(rank == emulator::cluster_rank());
    emulator::mbarrier_arrive(barrier, 0);
#else
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier), "r"(rank)
                 : "memory");
#endif
}

/// `tensor_load` into every block whose bit is set in `blocks`, at the same address, each with its own mbarrier there.
template <int RANK>
__device__ __forceinline__ void tensor_load_multicast(SharedAddress to, const TensorMap& map, SharedAddress barrier,
                                                      const int (&at)[RANK], uint16_t blocks)
{
#ifdef AUTOTUNE_EMULATOR
    emulator::require_own_block(blocks == 1 << emulator::cluster_rank());
    emulator::tensor_load(to, &map, barrier, at, RANK);
#else
    TENSOR_COPY("cp.async.bulk.tensor",
                "shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster", " [%0], [%1, ",
                "], [%2], %3", "r"(to), "l"(&map), "r"(barrier), "h"(blocks));
#endif
}

/// The same with a policy for the L2 cache.
template <int RANK>
__device__ __forceinline__ void tensor_load_multicast(SharedAddress to, const TensorMap& map, SharedAddress barrier,
                                                      const int (&at)[RANK], uint16_t blocks, uint64_t l2_policy)
{
#ifdef AUTOTUNE_EMULATOR
    tensor_load_multicast(to, map, barrier, at, blocks);
#else
    HINTED_TENSOR_COPY("cp.async.bulk.tensor",
                       "shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint",
                       " [%0], [%1, ", "], [%2], %3, %4", "r"(to), "l"(&map), "r"(barrier), "h"(blocks), "l"(l2_policy));
#endif
}
