// Backward pass on Hopper, prototype: dK and dV of BLOCK_N keys in registers of GROUPS warp groups, 64 keys each; dQ added
// up in fp32 in device memory.
#include "common/attention/score.cuh"
#include "common/attention/softmax.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/opaque.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/stmatrix.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"
#include "common/types.cuh"

#ifndef P_HS
#define P_HS 128
#endif
#ifndef P_CAUSAL
#define P_CAUSAL 0
#endif
#ifndef P_BF16
#define P_BF16 0
#endif
#ifndef P_GROUPS
#define P_GROUPS 2
#endif
#ifndef P_BM
#define P_BM 64
#endif
#ifndef P_QSTAGES
#define P_QSTAGES 2
#endif
#ifndef P_DSTAGES
#define P_DSTAGES 2
#endif
#ifndef P_DQ
#define P_DQ 1  // 0: groups share out rows of dQ, 1: columns, 2: columns, dQ transposed, 3: tiles by turns
#endif
#ifndef P_BULK
#define P_BULK 0  // dQ by bulk additions from shared memory, or by vector additions from registers
#endif
#ifndef P_HAO
#define P_HAO 1
#endif
#ifndef P_ROTATE
#define P_ROTATE 0
#endif
#ifndef P_EARLY
#define P_EARLY 0  // dV is issued before dS is computed
#endif
#ifndef P_LATE
#define P_LATE 0  // dQ is issued when dS has been computed: fewer registers
#endif
#ifndef P_SKIP
#define P_SKIP 0  // leave parts out, for measuring: 1: additions to dQ
#endif

#if P_BF16
using element = __nv_bfloat16;
#else
using element = __half;
#endif
constexpr int HS = P_HS;
constexpr bool CAUSAL = P_CAUSAL;
constexpr int GROUPS = P_GROUPS;
constexpr int BLOCK_M = P_BM;
constexpr int BLOCK_N = 64 * GROUPS;
constexpr int Q_STAGES = P_QSTAGES;
constexpr int D_STAGES = P_DSTAGES;
constexpr int DQ_SPLIT = P_DQ;
constexpr bool BULK = P_BULK;
constexpr int HEADS_AT_ONCE = P_HAO;
constexpr bool EARLY = P_EARLY;
constexpr bool LATE = P_LATE;
constexpr bool ROTATE = P_ROTATE && !CAUSAL;

constexpr int CONSUMERS = 128 * GROUPS;
constexpr int THREADS = CONSUMERS + 128;
constexpr int KEEP_CONSUMER = GROUPS == 1 ? 256 : GROUPS == 2 ? 240 : 160;
constexpr int KEEP_PRODUCER = GROUPS == 1 ? 56 : GROUPS == 2 ? 24 : 32;
constexpr unsigned ALL = 0xffffffff;

constexpr int SLAB = HS <= 32 ? 32 : 64;
constexpr int LINE = 2 * SLAB;
constexpr int SLABS = (HS + SLAB - 1) / SLAB;
constexpr int KEY_SLAB = BLOCK_N * LINE, KEY_BYTES = SLABS * KEY_SLAB;
constexpr int QUERY_SLAB = BLOCK_M * LINE, QUERY_BYTES = SLABS * QUERY_SLAB;
constexpr int PAIR_SLAB = BLOCK_M * 128, PAIR_BYTES = GROUPS * PAIR_SLAB;  // dS: queries by 64 keys a slab

// dQ of a tile, a group's part: 64 rows by DQ_N.
constexpr int DQ_N = DQ_SPLIT == 0 ? HS : DQ_SPLIT == 1 ? HS / GROUPS : DQ_SPLIT == 2 ? BLOCK_M : HS;
static_assert(DQ_SPLIT != 0 || BLOCK_M == 64 * GROUPS, "rows");
static_assert(DQ_SPLIT != 1 || (BLOCK_M == 64 && HS % (16 * GROUPS) == 0), "columns");
static_assert(DQ_SPLIT != 2 || HS == 64 * GROUPS, "transposed");
static_assert(DQ_SPLIT != 3 || BLOCK_M == 64, "turns");
constexpr int UNIT = 64 * DQ_N;  // floats

// Shared memory.
constexpr int K_PLACE = 0, V_PLACE = KEY_BYTES, Q_PLACE = 2 * KEY_BYTES, DO_PLACE = Q_PLACE + Q_STAGES * QUERY_BYTES;
constexpr int PAIR_PLACE = DO_PLACE + D_STAGES * QUERY_BYTES;
constexpr int STAGING_PLACE = PAIR_PLACE + 2 * PAIR_BYTES;
constexpr int LSE_PLACE = STAGING_PLACE + (BULK ? (DQ_SPLIT == 3 ? 1 : GROUPS) * UNIT * 4 : 0);
constexpr int DELTA_PLACE = LSE_PLACE + Q_STAGES * BLOCK_M * 4;
constexpr int BARRIER_PLACE = DELTA_PLACE + D_STAGES * BLOCK_M * 4;
enum { K_FULL, V_FULL, Q_FULL, Q_EMPTY = Q_FULL + Q_STAGES, DO_FULL = Q_EMPTY + Q_STAGES, DO_EMPTY = DO_FULL + D_STAGES,
       PAIR_FULL = DO_EMPTY + D_STAGES, PAIR_EMPTY = PAIR_FULL + 2, BARRIERS = PAIR_EMPTY + 2 };
constexpr int SMEM = BARRIER_PLACE + 8 * BARRIERS;
static_assert(SMEM <= 232448, "shared memory");

template <int STAGES>
struct Place {
    int stage = 0;
    int parity = 0;
    __device__ __forceinline__ void advance()
    {
        if constexpr (STAGES == 1) {
            parity ^= 1;
        } else if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <bool VALUE>
struct Known {
    static constexpr bool value = VALUE;
};

struct Work {
    int matrix;  // batch and key head
    int block;
};

__device__ __forceinline__ Work work_at(int index, int blocks, int matrices)
{
    const int group = index / (blocks * HEADS_AT_ONCE);
    const int at_once = min(HEADS_AT_ONCE, matrices - group * HEADS_AT_ONCE);
    const int rest = index - group * blocks * HEADS_AT_ONCE;
    Work work;
    work.block = rest / at_once;
    work.matrix = group * HEADS_AT_ONCE + rest - work.block * at_once;
    return work;
}

/// The one of two arrays that has N elements, the first if both have.
template <int N, int A, int B>
__device__ __forceinline__ float (&choose(float (&a)[A], float (&b)[B]))[N]
{
    if constexpr (A == N)
        return a;
    else
        return b;
}

/// stmatrix, each 8x8 matrix transposed on its way.
__device__ __forceinline__ void stmatrix_transposed(SharedAddress row, const uint32_t (&from)[4])
{
#ifdef AUTOTUNE_EMULATOR
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        const SharedAddress first = __shfl_sync(ALL, row, 8 * i + lane % 4 * 2);
        const SharedAddress second = __shfl_sync(ALL, row, 8 * i + lane % 4 * 2 + 1);
        reinterpret_cast<uint16_t*>(first)[lane / 4] = uint16_t(from[i]);
        reinterpret_cast<uint16_t*>(second)[lane / 4] = uint16_t(from[i] >> 16);
    }
#else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
#endif
}

__device__ __forceinline__ float2 shared_pair(SharedAddress at)
{
#ifdef AUTOTUNE_EMULATOR
    return *reinterpret_cast<const float2*>(at);
#else
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at));
    return x;
#endif
}

__device__ __forceinline__ void shared_store(SharedAddress at, float a, float b, float c, float d)
{
#ifdef AUTOTUNE_EMULATOR
    float* const to = reinterpret_cast<float*>(at);
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
#else
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
#endif
}

__device__ __forceinline__ void add4(float* to, float a, float b, float c, float d)
{
#if defined(__CUDA_ARCH__) && !defined(AUTOTUNE_EMULATOR)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
#else
    atomicAdd(to, a), atomicAdd(to + 1, b), atomicAdd(to + 2, c), atomicAdd(to + 3, d);
#endif
}

__device__ __forceinline__ int along_columns(int slab_bytes, int step)
{
    return step / (SLAB / 16) * slab_bytes + step % (SLAB / 16) * 32;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
key_gradients(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
              const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap dout_map,
              const __grid_constant__ TensorMap dk_map, const __grid_constant__ TensorMap dv_map,
              const float* __restrict__ lses, const float* __restrict__ deltas, float* __restrict__ dq_sums, int B, int NH,
              int NH_kv, int T, int T_kv, float scale)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    const SharedAddress start = shared_address(smem);
    const auto barrier = [&](int number) { return start + BARRIER_PLACE + 8 * number; };

    const Scores<CAUSAL> scores(T, T_kv, scale);
    const int blocks = (T_kv + BLOCK_N - 1) / BLOCK_N;
    const Work work = work_at(blockIdx.x, blocks, B * NH_kv);
    const int batch = work.matrix / NH_kv;
    const int head_kv = work.matrix - batch * NH_kv;
    const int heads = NH / NH_kv;
    const int key = work.block * BLOCK_N;
    const int tiles = (T + BLOCK_M - 1) / BLOCK_M;
    const int first_tile = min(scores.first_query(key) / BLOCK_M, tiles - 1);
    const int start_tile = ROTATE ? int(static_cast<long long>(work.block) * tiles / blocks) : first_tile;

    if (threadIdx.x == 0) {
        mbarrier_init(barrier(K_FULL), 1);
        mbarrier_init(barrier(V_FULL), 1);
        for (int i = 0; i < Q_STAGES; ++i) {
            mbarrier_init(barrier(Q_FULL + i), 1);
            mbarrier_init(barrier(Q_EMPTY + i), 4 * GROUPS);
        }
        for (int i = 0; i < D_STAGES; ++i) {
            mbarrier_init(barrier(DO_FULL + i), 1);
            mbarrier_init(barrier(DO_EMPTY + i), 4 * GROUPS);
        }
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(barrier(PAIR_FULL + i), 4 * GROUPS);
            mbarrier_init(barrier(PAIR_EMPTY + i), 4 * GROUPS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    if (threadIdx.x >= CONSUMERS) {
        release_registers<KEEP_PRODUCER>();
        if (threadIdx.x == CONSUMERS) {
            prefetch(q_map);
            prefetch(k_map);
            prefetch(v_map);
            prefetch(dout_map);
            Place<Q_STAGES> q;
            Place<D_STAGES> d;
            const auto load = [&](SharedAddress to, int slab_bytes, const TensorMap& map, SharedAddress full, int row, int head) {
#pragma unroll
                for (int slab = 0; slab < SLABS; ++slab)
                    tensor_load<4>(to + slab * slab_bytes, map, full, {slab * SLAB, row, head, batch});
            };
            mbarrier_arrive_expect(barrier(K_FULL), KEY_BYTES);
            load(start + K_PLACE, KEY_SLAB, k_map, barrier(K_FULL), key, head_kv);
            bool opening = true;
#pragma unroll 1
            for (int i = 0; i < heads; ++i) {
                const int head = head_kv * heads + i;
                const long long rows = (static_cast<long long>(batch) * NH + head) * tiles * BLOCK_M;
                int tile = start_tile;
#pragma unroll 1
                for (int n = first_tile; n < tiles; ++n) {
                    mbarrier_wait(barrier(Q_EMPTY + q.stage), q.parity ^ 1);
                    mbarrier_arrive_expect(barrier(Q_FULL + q.stage), QUERY_BYTES + BLOCK_M * 4);
                    load(start + Q_PLACE + q.stage * QUERY_BYTES, QUERY_SLAB, q_map, barrier(Q_FULL + q.stage), tile * BLOCK_M, head);
                    bulk_load(start + LSE_PLACE + q.stage * BLOCK_M * 4, lses + rows + tile * BLOCK_M, BLOCK_M * 4, barrier(Q_FULL + q.stage));
                    q.advance();
                    if (opening) {
                        mbarrier_arrive_expect(barrier(V_FULL), KEY_BYTES);
                        load(start + V_PLACE, KEY_SLAB, v_map, barrier(V_FULL), key, head_kv);
                        opening = false;
                    }
                    mbarrier_wait(barrier(DO_EMPTY + d.stage), d.parity ^ 1);
                    mbarrier_arrive_expect(barrier(DO_FULL + d.stage), QUERY_BYTES + BLOCK_M * 4);
                    load(start + DO_PLACE + d.stage * QUERY_BYTES, QUERY_SLAB, dout_map, barrier(DO_FULL + d.stage), tile * BLOCK_M, head);
                    bulk_load(start + DELTA_PLACE + d.stage * BLOCK_M * 4, deltas + rows + tile * BLOCK_M, BLOCK_M * 4, barrier(DO_FULL + d.stage));
                    d.advance();
                    if (++tile == tiles) tile = 0;
                }
            }
        }
    } else {
        take_registers<KEEP_CONSUMER>();
        const int group = __shfl_sync(ALL, threadIdx.x / 128, 0);
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x % 128 / 32;

        float dk[HS / 2], dv[HS / 2];
#pragma unroll
        for (int i = 0; i < HS / 2; ++i) dk[i] = dv[i] = 0.0f;

        const uint64_t k_own = wgmma_descriptor<LINE>(start + K_PLACE + group * 64 * LINE, 16, 8 * LINE);
        const uint64_t v_own = wgmma_descriptor<LINE>(start + V_PLACE + group * 64 * LINE, 16, 8 * LINE);
        // where this lane's rows of dS go: queries by keys
        const int pair_at = group * PAIR_SLAB +
                            swizzled<128>((lane / 16 * 8 + lane % 8) * 128 + warp * 32 + lane / 8 % 2 * 16);
        Place<Q_STAGES> q;
        Place<D_STAGES> d;
        int count = 0;           // steps before
        float* dq_before = nullptr;  // this thread's place in the sums of the step before

        const auto arrive = [&](int number) {
            __syncwarp();
            if (lane == 0) mbarrier_arrive(barrier(number));
        };
        // dQ of step `number`, whose dS is there.
        const auto multiply_dq = [&](float (&dq)[DQ_N / 2], int number) {
            const SharedAddress pairs = start + PAIR_PLACE + (number & 1) * PAIR_BYTES;
            if constexpr (DQ_SPLIT == 2) {
                const uint64_t a = wgmma_descriptor<LINE>(start + K_PLACE + group * KEY_SLAB, KEY_SLAB, 8 * LINE);
                const uint64_t b = wgmma_descriptor<128>(pairs, 16, 1024);
#pragma unroll
                for (int step = 0; step < BLOCK_N / 16; ++step)
                    wgmma<element, DQ_N, true, false>(dq, wgmma_advance(a, step * 16 * LINE),
                                                      wgmma_advance(b, step / 4 * PAIR_SLAB + step % 4 * 32), step > 0);
            } else {
                const uint64_t a = wgmma_descriptor<128>(pairs + (DQ_SPLIT == 0 ? group * 64 * 128 : 0), 16, 1024);
                const int columns = DQ_SPLIT == 1 ? group * DQ_N : 0;
                const uint64_t b = wgmma_descriptor<LINE>(start + K_PLACE + columns / SLAB * KEY_SLAB + columns % SLAB * 2, KEY_SLAB, 8 * LINE);
#pragma unroll
                for (int step = 0; step < BLOCK_N / 16; ++step)
                    wgmma<element, DQ_N, false, true>(dq, wgmma_advance(a, step / 4 * PAIR_SLAB + step % 4 * 32),
                                                      wgmma_advance(b, step * 16 * LINE), step > 0);
            }
            wgmma_commit();
        };
        const auto add_dq = [&](const float (&dq)[DQ_N / 2], float* sums) {
            if constexpr (P_SKIP == 1) {
                if (dq[0] == 12345.678f) add4(sums, dq[0], dq[1], dq[2], dq[3]);
            } else if constexpr (BULK) {
                const SharedAddress staging = start + STAGING_PLACE + (DQ_SPLIT == 3 ? 0 : group * UNIT * 4);
                if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
                named_barrier<128>(1 + group);
#pragma unroll
                for (int c = 0; c < DQ_N / 8; ++c)
                    shared_store(staging + c * 2048 + threadIdx.x % 128 * 16, dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]);
                fence_async_shared();
                named_barrier<128>(1 + group);
                if (threadIdx.x % 128 == 0) {
                    bulk_add(sums, staging, UNIT * 4);
                    bulk_commit();
                }
            } else {
#pragma unroll
                for (int c = 0; c < DQ_N / 8; ++c)
                    add4(sums + c * 512, dq[4 * c], dq[4 * c + 1], dq[4 * c + 2], dq[4 * c + 3]);
            }
        };

        const auto attend = [&](int tile, float* dq_at, auto masked, auto first) {
            float s[BLOCK_M / 2], dp[BLOCK_M / 2];
            uint32_t p[BLOCK_M / 16][4], ds[BLOCK_M / 16][4];
            const SharedAddress q_tile = start + Q_PLACE + q.stage * QUERY_BYTES;
            const SharedAddress d_tile = start + DO_PLACE + d.stage * QUERY_BYTES;
            if constexpr (first.value) mbarrier_wait(barrier(K_FULL), 0);
            mbarrier_wait(barrier(Q_FULL + q.stage), q.parity);
            wgmma_fence(s);
            {
                const uint64_t b = wgmma_descriptor<LINE>(q_tile, 16, 8 * LINE);
#pragma unroll
                for (int step = 0; step < HS / 16; ++step)
                    wgmma<element, BLOCK_M>(s, wgmma_advance(k_own, along_columns(KEY_SLAB, step)),
                                            wgmma_advance(b, along_columns(QUERY_SLAB, step)), step > 0);
                wgmma_commit();
            }
            if constexpr (first.value) {
                mbarrier_wait(barrier(V_FULL), 0);
            } else {
                
            }
            mbarrier_wait(barrier(DO_FULL + d.stage), d.parity);
            wgmma_fence(dp);
            {
                const uint64_t b = wgmma_descriptor<LINE>(d_tile, 16, 8 * LINE);
#pragma unroll
                for (int step = 0; step < HS / 16; ++step)
                    wgmma<element, BLOCK_M>(dp, wgmma_advance(v_own, along_columns(KEY_SLAB, step)),
                                            wgmma_advance(b, along_columns(QUERY_SLAB, step)), step > 0);
                wgmma_commit();
            }
            wgmma_wait<1>(s);
            if constexpr (masked.value) {
                const int query = tile * BLOCK_M;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int own = key + group * 64 + warp * 16 + 8 * half + lane / 4;
                    const int hidden = (own < T_kv ? scores.first_query(own) - query : 1 << 30) - lane % 4 * 2;
#pragma unroll
                    for (int n = 0; n < BLOCK_M / 8; ++n)
#pragma unroll
                        for (int e = 0; e < 2; ++e)
                            if (8 * n + e < hidden) s[4 * n + 2 * half + e] = minus_infinity();
                }
            }
            const SharedAddress lse_at = start + LSE_PLACE + q.stage * BLOCK_M * 4 + lane % 4 * 8;
#pragma unroll
            for (int n = 0; n < BLOCK_M / 8; ++n) {
                const float2 negative = shared_pair(lse_at + 32 * n);  // -lse in base 2
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    s[4 * n + e] = exp2_fast(fmaf(s[4 * n + e], scores.scale_base2, e % 2 ? negative.y : negative.x));
            }
#pragma unroll
            for (int step = 0; step < BLOCK_M / 16; ++step)
#pragma unroll
                for (int i = 0; i < 4; ++i) p[step][i] = pack<element>(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
            float apart[DQ_N == BLOCK_M ? 1 : DQ_N / 2];
            float(&dq)[DQ_N / 2] = choose<DQ_N / 2>(s, apart);  // S is no longer needed
            const int before = count - 1;
            const bool mine = !first.value && (DQ_SPLIT != 3 || before % GROUPS == group);
            const auto begin_dq = [&] {
                if (mine) {
                    mbarrier_wait(barrier(PAIR_FULL + (before & 1)), before >> 1 & 1);
                    wgmma_fence(dq);
                    multiply_dq(dq, before);
                }
            };
            const auto multiply_dv = [&] {
                const uint64_t b = wgmma_descriptor<LINE>(d_tile, QUERY_SLAB, 8 * LINE);
#pragma unroll
                for (int step = 0; step < BLOCK_M / 16; ++step)
                    wgmma<element, HS, true>(dv, p[step], wgmma_advance(b, step * 16 * LINE), 1);
            };
            if constexpr (!LATE) begin_dq();
            if constexpr (EARLY) {
                wgmma_fence(p);
                multiply_dv();
                wgmma_commit();
            }
            if (LATE || !mine)
                wgmma_wait<EARLY>(dp);
            else
                wgmma_wait<1 + EARLY>(dp);
            const SharedAddress delta_at = start + DELTA_PLACE + d.stage * BLOCK_M * 4 + lane % 4 * 8;
#pragma unroll
            for (int step = 0; step < BLOCK_M / 16; ++step) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int n = 2 * step + half;
                    const float2 delta = shared_pair(delta_at + 32 * n);
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float2 w = unpack_pair<element>(p[step][2 * half + i]);
                        ds[step][2 * half + i] = pack<element>(w.x * (dp[4 * n + 2 * i] - delta.x),
                                                               w.y * (dp[4 * n + 2 * i + 1] - delta.y));
                    }
                }
            }
            if constexpr (LATE) begin_dq();
            if (count >= 2) mbarrier_wait(barrier(PAIR_EMPTY + (count & 1)), (count >> 1 & 1) ^ 1);
            const SharedAddress pairs = start + PAIR_PLACE + (count & 1) * PAIR_BYTES + pair_at;
#pragma unroll
            for (int step = 0; step < BLOCK_M / 16; ++step) stmatrix_transposed(pairs + step * 16 * 128, ds[step]);
            if constexpr (EARLY)
                wgmma_fence(ds);
            else
                wgmma_fence(p, ds);
            if constexpr (!EARLY) multiply_dv();
            {
                const uint64_t b = wgmma_descriptor<LINE>(q_tile, QUERY_SLAB, 8 * LINE);
#pragma unroll
                for (int step = 0; step < BLOCK_M / 16; ++step)
                    wgmma<element, HS, true>(dk, ds[step], wgmma_advance(b, step * 16 * LINE), 1);
                wgmma_commit();
            }
            fence_async_shared();
            arrive(PAIR_FULL + (count & 1));
            if (mine) {
                wgmma_wait<EARLY && !LATE ? 2 : 1>(dq);
                arrive(PAIR_EMPTY + (before & 1));
                add_dq(dq, dq_before);
            } else if (!first.value) {
                arrive(PAIR_EMPTY + (before & 1));
            }
            wgmma_wait<0>(dk, dv, p, ds);
            arrive(Q_EMPTY + q.stage);
            arrive(DO_EMPTY + d.stage);
            dq_before = dq_at;
            ++count;
            q.advance();
            d.advance();
        };

        wgmma_fence(dk, dv);
        const bool ragged = key + BLOCK_N > T_kv;
        const int masked_end = ragged ? tiles : (CAUSAL ? (scores.first_query(key + BLOCK_N - 1) + BLOCK_M - 1) / BLOCK_M : 0);
#pragma unroll 1
        for (int i = 0; i < heads; ++i) {
            const long long number = (static_cast<long long>(batch) * NH + head_kv * heads + i) * tiles;
            const int place = DQ_SPLIT == 3 ? 0 : group * UNIT;
            const int thread_place = BULK ? 0 : threadIdx.x % 128 * 4;
            float* const sums = dq_sums + number * (BLOCK_M * HS) + place + thread_place;
            const auto at = [&](int tile) { return sums + static_cast<long long>(tile) * (BLOCK_M * HS); };
            int tile = start_tile;
            int left = tiles - first_tile;
            const auto next = [&] {
                --left;
                if (++tile == tiles) tile = 0;
            };
            if (i == 0) {
                attend(tile, at(tile), Known<true>(), Known<true>());
                next();
            }
            if (CAUSAL || ragged) {
#pragma unroll 1
                for (; left > 0 && tile < masked_end; next()) attend(tile, at(tile), Known<true>(), Known<false>());
            }
#pragma unroll 1
            for (; left > 0; next()) attend(tile, at(tile), Known<false>(), Known<false>());
        }

        {  // dQ of the last step
            const int before = count - 1;
            if (DQ_SPLIT != 3 || before % GROUPS == group) {
                float dq[DQ_N / 2];
                mbarrier_wait(barrier(PAIR_FULL + (before & 1)), before >> 1 & 1);
                wgmma_fence(dq);
                multiply_dq(dq, before);
                wgmma_wait<0>(dq);
                add_dq(dq, dq_before);
            }
        }
                const auto write = [&](int place, const float(&x)[HS / 2], float factor, const TensorMap& map) {
#pragma unroll
            for (int c = 0; c < HS / 16; ++c) {
                uint32_t both[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) both[i] = pack<element>(x[8 * c + 2 * i] * factor, x[8 * c + 2 * i + 1] * factor);
                const int row = group * 64 + warp * 16 + lane % 16, col = 16 * c + lane / 16 * 8;
                stmatrix(start + place + col / SLAB * KEY_SLAB + swizzled<LINE>(row * LINE + col % SLAB * 2), both);
            }
            fence_async_shared();
            named_barrier<128>(1 + group);
            if (threadIdx.x % 128 == 0 && key + group * 64 < T_kv) {
#pragma unroll
                for (int slab = 0; slab < SLABS; ++slab)
                    tensor_store<4>(map, {slab * SLAB, key + group * 64, head_kv, batch}, start + place + slab * KEY_SLAB + group * 64 * LINE);
                bulk_commit();
            }
        };
        write(V_PLACE, dv, 1.0f, dv_map);
        named_barrier<CONSUMERS>(0 + 8);  // K has been read
        write(K_PLACE, dk, scale, dk_map);
        if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
    }
}

// out, dout, dq: strides in elements of (B, NH, T); HS contiguous.
struct Strides {
    long long b, h, t;
};

/// -lse in base 2 and delta, rows padded to whole tiles; clears dQ's sums. HS / 8 threads a row, 256 a block.
extern "C" __global__ void __launch_bounds__(256)
row_delta(const element* __restrict__ out, const element* __restrict__ dout, const float* __restrict__ lse,
          float* __restrict__ lses, float* __restrict__ deltas, float* __restrict__ dq_sums, long long ob, long long oh,
          long long ot, long long db, long long dh, long long dt, int NH, int T)
{
    constexpr int LANES = HS / 8;
    const int rows = (T + BLOCK_M - 1) / BLOCK_M * BLOCK_M;
    const int row = (blockIdx.x * 256 + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    const int h = blockIdx.y, b = blockIdx.z;
    const long long number = static_cast<long long>(b) * NH + h;
    float sum = 0.0f;
    if (row < T) {
        float x[8], y[8];
        load<8>(out + b * ob + h * oh + row * ot + lane * 8, x);
        load<8>(dout + b * db + h * dh + row * dt + lane * 8, y);
#pragma unroll
        for (int e = 0; e < 8; ++e) sum += x[e] * y[e];
    }
#pragma unroll
    for (int i = LANES / 2; i > 0; i /= 2) sum += __shfl_xor_sync(ALL, sum, i);
    if (row >= rows) return;
    if (lane == 0) {
        const float log_sum = row < T ? lse[number * T + row] : minus_infinity();
        const bool sees = log_sum != minus_infinity();
        lses[number * rows + row] = sees ? -log_sum * LOG2_E : minus_infinity();
        deltas[number * rows + row] = sees ? sum : 0.0f;
    }
    float4* const sums = reinterpret_cast<float4*>(dq_sums + (number * rows + row) * HS) + lane;
    sums[0] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    sums[LANES] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

/// Scales and rounds dQ; a block has a tile.
extern "C" __global__ void __launch_bounds__(256)
round_dq(const float* __restrict__ dq_sums, element* __restrict__ dq, long long qb, long long qh, long long qt, int NH,
         int T, float scale)
{
    constexpr int PITCH = HS + 8;
    __shared__ __align__(16) element tile[BLOCK_M * PITCH];
    const int h = blockIdx.y, b = blockIdx.z;
    const long long number = (static_cast<long long>(b) * NH + h) * gridDim.x + blockIdx.x;
    const float4* const from = reinterpret_cast<const float4*>(dq_sums + number * (BLOCK_M * HS));
#pragma unroll 4
    for (int i = threadIdx.x; i < BLOCK_M * HS / 4; i += 256) {
        const float4 x = from[i];
        const int unit = i / (UNIT / 4), rest = i % (UNIT / 4);
        const int c = rest / 128, m = rest % 128 / 32 * 16 + rest % 32 / 4, n = 8 * c + rest % 4 * 2;
        if constexpr (DQ_SPLIT == 2) {
            const int col = unit * 64 + m;
            tile[n * PITCH + col] = from_float<element>(x.x * scale);
            tile[(n + 1) * PITCH + col] = from_float<element>(x.y * scale);
            tile[n * PITCH + col + 8] = from_float<element>(x.z * scale);
            tile[(n + 1) * PITCH + col + 8] = from_float<element>(x.w * scale);
        } else {
            const int row = (DQ_SPLIT == 0 ? unit * 64 : 0) + m, col = (DQ_SPLIT == 1 ? unit * DQ_N : 0) + n;
            *reinterpret_cast<uint32_t*>(&tile[row * PITCH + col]) = pack<element>(x.x * scale, x.y * scale);
            *reinterpret_cast<uint32_t*>(&tile[(row + 8) * PITCH + col]) = pack<element>(x.z * scale, x.w * scale);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BLOCK_M * HS / 8; i += 256) {
        const int row = i / (HS / 8), col = i % (HS / 8) * 8, t = blockIdx.x * BLOCK_M + row;
        if (t < T) *reinterpret_cast<uint4*>(dq + b * qb + h * qh + t * qt + col) = *reinterpret_cast<const uint4*>(&tile[row * PITCH + col]);
    }
}
