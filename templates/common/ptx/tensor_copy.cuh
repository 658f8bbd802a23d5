// TMA (sm_90 and later): one thread starts a copy of a whole box between a tensor in device memory and shared memory, or
// of a run of bytes. Loads complete on an mbarrier, which must expect the box's bytes, those out of the tensor too: they
// arrive as zeros. Stores read shared memory later: what threads wrote there must be behind `fence_async_shared` and a
// barrier, and may be overwritten after `bulk_wait_read`. `at` is the box's first element, the contiguous dimension first.
#pragma once

#include "common/ptx/tensor_map.cuh"
#include "common/ptx/shared_address.cuh"

#ifdef AUTOTUNE_EMULATOR

inline uint64_t l2_evict_first() { return 1; }
inline uint64_t l2_evict_last() { return 2; }

template <int RANK>
inline void tensor_load(SharedAddress to, const TensorMap& map, SharedAddress barrier, const int (&at)[RANK])
{
    emulator::tensor_load(to, &map, barrier, at, RANK);
}

template <int RANK>
inline void tensor_load(SharedAddress to, const TensorMap& map, SharedAddress barrier, const int (&at)[RANK], uint64_t)
{
    emulator::tensor_load(to, &map, barrier, at, RANK);
}

template <int RANK>
inline void tensor_store(const TensorMap& map, const int (&at)[RANK], SharedAddress from)
{
    emulator::tensor_store(&map, at, RANK, from, false);
}

template <int RANK>
inline void tensor_add(const TensorMap& map, const int (&at)[RANK], SharedAddress from)
{
    emulator::tensor_store(&map, at, RANK, from, true);
}

inline void bulk_load(SharedAddress to, const void* from, int bytes, SharedAddress barrier)
{
    emulator::bulk_load(to, from, bytes, barrier);
}

inline void bulk_store(void* to, SharedAddress from, int bytes) { emulator::bulk_store(to, from, bytes, false); }
inline void bulk_add(float* to, SharedAddress from, int bytes) { emulator::bulk_store(to, from, bytes, true); }
inline void bulk_commit() { emulator::bulk_commit(); }

template <int N>
inline void bulk_wait()
{
    emulator::bulk_wait(N, false);
}

template <int N>
inline void bulk_wait_read()
{
    emulator::bulk_wait(N, true);
}

#else

/// Policies for `tensor_load`: what it brings leaves the L2 cache first, or last.
__device__ __forceinline__ uint64_t l2_evict_first()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint64_t l2_evict_last()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
    return policy;
}

// One instruction for each number of dimensions. `before` and `after` are what stands around the coordinates, whose numbers
// follow; then come the operands that they name.
#define TENSOR_COPY_NUMBERED(instruction, suffix, before, after, C0, C1, C2, C3, C4, ...)                             \
    if constexpr (RANK == 1)                                                                                          \
        asm volatile(instruction ".1d." suffix before "{" C0 "}" after ";" ::__VA_ARGS__, "r"(at[0]) : "memory");     \
    else if constexpr (RANK == 2)                                                                                     \
        asm volatile(instruction ".2d." suffix before "{" C0 ", " C1 "}" after ";" ::__VA_ARGS__, "r"(at[0]),         \
                     "r"(at[1])                                                                                       \
                     : "memory");                                                                                     \
    else if constexpr (RANK == 3)                                                                                     \
        asm volatile(instruction ".3d." suffix before "{" C0 ", " C1 ", " C2 "}" after ";" ::__VA_ARGS__, "r"(at[0]), \
                     "r"(at[1]), "r"(at[2])                                                                           \
                     : "memory");                                                                                     \
    else if constexpr (RANK == 4)                                                                                     \
        asm volatile(instruction ".4d." suffix before "{" C0 ", " C1 ", " C2 ", " C3 "}" after ";" ::__VA_ARGS__,     \
                     "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])                                                   \
                     : "memory");                                                                                     \
    else                                                                                                              \
        asm volatile(instruction ".5d." suffix before "{" C0 ", " C1 ", " C2 ", " C3 ", " C4 "}" after                \
                                 ";" ::__VA_ARGS__,                                                                   \
                     "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])                                       \
                     : "memory")

// Four operands, or five, before the coordinates.
#define TENSOR_COPY(instruction, suffix, before, after, ...) \
    TENSOR_COPY_NUMBERED(instruction, suffix, before, after, "%4", "%5", "%6", "%7", "%8", __VA_ARGS__)
#define HINTED_TENSOR_COPY(instruction, suffix, before, after, ...) \
    TENSOR_COPY_NUMBERED(instruction, suffix, before, after, "%5", "%6", "%7", "%8", "%9", __VA_ARGS__)

/// Starts a load of the map's box; `to` is aligned to 128 bytes (a swizzled box: to 8 of its rows of 128, 64 or 32 bytes
/// laid out as lines of 128, that is 1024, 512 or 256 bytes).
template <int RANK>
__device__ __forceinline__ void tensor_load(SharedAddress to, const TensorMap& map, SharedAddress barrier,
                                            const int (&at)[RANK])
{
    static_assert(1 <= RANK && RANK <= 5, "TMA knows 1 to 5 dimensions");
    TENSOR_COPY("cp.async.bulk.tensor", "shared::cluster.global.tile.mbarrier::complete_tx::bytes", " [%0], [%1, ",
                "], [%2]", "r"(to), "l"(&map), "r"(barrier), "l"(uint64_t(0)));
}

/// The same with a policy for the L2 cache.
template <int RANK>
__device__ __forceinline__ void tensor_load(SharedAddress to, const TensorMap& map, SharedAddress barrier,
                                            const int (&at)[RANK], uint64_t l2_policy)
{
    static_assert(1 <= RANK && RANK <= 5, "TMA knows 1 to 5 dimensions");
    TENSOR_COPY("cp.async.bulk.tensor",
                "shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint", " [%0], [%1, ",
                "], [%2], %3", "r"(to), "l"(&map), "r"(barrier), "l"(l2_policy));
}

/// Starts a store of the map's box; what lies out of the tensor is not written. Part of the thread's open bulk group.
template <int RANK>
__device__ __forceinline__ void tensor_store(const TensorMap& map, const int (&at)[RANK], SharedAddress from)
{
    static_assert(1 <= RANK && RANK <= 5, "TMA knows 1 to 5 dimensions");
    TENSOR_COPY("cp.async.bulk.tensor", "global.shared::cta.tile.bulk_group", " [%1, ", "], [%0]", "r"(from), "l"(&map),
                "r"(0), "r"(0));
}

/// The same, adding to what is there, in the map's type, element by element.
template <int RANK>
__device__ __forceinline__ void tensor_add(const TensorMap& map, const int (&at)[RANK], SharedAddress from)
{
    static_assert(1 <= RANK && RANK <= 5, "TMA knows 1 to 5 dimensions");
    TENSOR_COPY("cp.reduce.async.bulk.tensor", "global.shared::cta.add.tile.bulk_group", " [%1, ", "], [%0]", "r"(from),
                "l"(&map), "r"(0), "r"(0));
}

/// Starts a load of `bytes` neighbouring bytes, a multiple of 16; both ends are aligned to 16 bytes.
__device__ __forceinline__ void bulk_load(SharedAddress to, const void* from, int bytes, SharedAddress barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/// Starts a store of `bytes` neighbouring bytes, a multiple of 16; both ends are aligned to 16 bytes.
__device__ __forceinline__ void bulk_store(void* to, SharedAddress from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
}

/// The same, adding floats to what is there, each atomically.
__device__ __forceinline__ void bulk_add(float* to, SharedAddress from, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

/// Ends a group of this thread's stores; an empty group counts too.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until at most this thread's latest N groups of stores are under way.
template <int N>
__device__ __forceinline__ void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/// Waits until all but this thread's latest N groups have read their shared memory.
template <int N>
__device__ __forceinline__ void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

#endif
