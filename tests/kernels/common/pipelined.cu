// C = A B^T by a block of three warp groups: one loads tiles through a ring of stages, two multiply 64 rows each.
// A is M x K, B is N x K, C is M x N in fp32, each a tensor map; a stage holds 64 k of 128 rows of A and of N of B.
#include "common/ptx/named_barrier.cuh"
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/registers.cuh"
#include "common/ptx/tensor_copy.cuh"
#include "common/ptx/wgmma.cuh"

constexpr int N = 96;
constexpr int STAGES = 3;
constexpr int A_BYTES = 128 * 128, B_BYTES = N * 128, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int OUT_PLACE = STAGES * STAGE_BYTES, OUT_BYTES = 64 * 32 * 4;  // 32 columns of 64 rows for each consumer
constexpr int BARRIERS = OUT_PLACE + 2 * OUT_BYTES;

extern "C" __global__ void __launch_bounds__(384, 1)
test(const __half*, const __half*, const int* sizes, float*, const __grid_constant__ TensorMap a_map,
     const __grid_constant__ TensorMap b_map, const __grid_constant__ TensorMap c_map)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const SharedAddress start = shared_address(memory);
    const SharedAddress full = start + BARRIERS, empty = full + 8 * STAGES;
    const int steps = sizes[0], group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        prefetch(a_map);
        prefetch(b_map);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + 8 * stage, 1);
            mbarrier_init(empty + 8 * stage, 2);
        }
        fence_mbarrier_init();  // mbarriers fenced
    }
    __syncthreads();  // mbarriers made
    if (group == 0) {
        release_registers<40>();
        if (threadIdx.x == 0) {
            for (int step = 0; step < steps; ++step) {
                const int stage = step % STAGES, parity = step / STAGES % 2;
                const SharedAddress to = start + stage * STAGE_BYTES;
                mbarrier_wait(empty + 8 * stage, parity ^ 1);  // stage free
                mbarrier_arrive_expect(full + 8 * stage, STAGE_BYTES);  // bytes
                tensor_load(to, a_map, full + 8 * stage, {64 * step, 128 * int(blockIdx.x)}, l2_evict_first());  // load
                tensor_load(to + A_BYTES, b_map, full + 8 * stage, {64 * step, 0}, l2_evict_last());
            }
        }
    } else {
        take_registers<232>();
        const int consumer = group - 1;
        float sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) sum[i] = 0.0f;
        wgmma_fence(sum);
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, parity = step / STAGES % 2;
            const SharedAddress from = start + stage * STAGE_BYTES;
            mbarrier_wait(full + 8 * stage, parity);  // stage full
            const uint64_t a = wgmma_descriptor<128>(from + consumer * 64 * 128, 16, 1024);
            const uint64_t b = wgmma_descriptor<128>(from + A_BYTES, 16, 1024);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; ++k)
                wgmma<__half, N>(sum, wgmma_advance(a, 32 * k), wgmma_advance(b, 32 * k), 1);  // product
            wgmma_commit();
            wgmma_wait<1>();  // previous product
            if (step > 0 && threadIdx.x % 128 == 0) mbarrier_arrive(empty + 8 * ((step - 1) % STAGES));
        }
        wgmma_wait<0>(sum);
        const SharedAddress out = start + OUT_PLACE + consumer * OUT_BYTES;
        const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
        for (int part = 0; part < N / 32; ++part) {
            if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
            named_barrier<128>(1 + consumer);
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int at = (row + i % 4 / 2 * 8) * 128 + (i / 4 * 8 + lane % 4 * 2 + i % 2) * 4;
                *reinterpret_cast<float*>(memory + (out - start) + swizzled<128>(at)) = sum[part * 16 + i];  // out
            }
            fence_async_shared();  // out fenced
            named_barrier<128>(1 + consumer);
            if (threadIdx.x % 128 == 0) {
                tensor_store(c_map, {32 * part, 128 * int(blockIdx.x) + 64 * consumer}, out);  // store
                bulk_commit();
            }
        }
        if (threadIdx.x % 128 == 0) bulk_wait_read<0>();
    }
}
