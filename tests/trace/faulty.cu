// Kernels with one fault each, on the line that ends with the fault's name. Launches and findings: test_check_faults.py.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" __global__ void read_past_end(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i + 1];  // read_past_end
}
extern "C" __global__ void write_past_end(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 1.0f;  // write_past_end
}
extern "C" __global__ void read_before_start(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i - 1];  // read_before_start
}
extern "C" __global__ void read_far_away(const float* x, float* y, int n)
{
    y[threadIdx.x] = x[threadIdx.x * 1000];  // read_far_away
}
extern "C" __global__ void atomic_past_end(const float* x, float* y, int n)
{
    atomicAdd(&y[threadIdx.x * 4], 1.0f);  // atomic_past_end
}
extern "C" __global__ void vector_past_end(const float* x, float* y, int n)
{
    const int i = 4 * threadIdx.x;
    if (i < n) {
        const float4 v = *reinterpret_cast<const float4*>(x + i);  // vector_past_end
        y[threadIdx.x] = v.x + v.y;
    }
}
extern "C" __global__ void between_tensors(const float* x, float* y, int n)
{
    y[threadIdx.x] = x[threadIdx.x];  // between_tensors
}
extern "C" __global__ void writes_input(float* x, float* y, int n)
{
    x[threadIdx.x] = 0.0f;  // writes_input
    y[threadIdx.x] = 0.0f;
}

extern "C" __global__ void shared_past_end(const float* x, float* y, int n)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x + 1];  // shared_past_end
}
extern "C" __global__ void shared_before_start(const float* x, float* y, int n)
{
    extern __shared__ float tile[];
    tile[int(threadIdx.x) - 1] = x[threadIdx.x];  // shared_before_start
    __syncthreads();
    y[threadIdx.x] = 0.0f;
}
extern "C" __global__ void static_index(const float* x, float* y, int n)
{
    __shared__ float tile[32];
    tile[threadIdx.x + n - n] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[(threadIdx.x + 1) % (n + 1)];  // static_index
}
extern "C" __global__ void local_index(const float* x, float* y, int n)
{
    float some[4] = {x[0], x[1], x[2], x[3]};
    y[threadIdx.x] = threadIdx.x < 5 ? some[threadIdx.x] : 0.0f;  // local_index
}

extern "C" __global__ void misaligned_load(const float* x, float* y, int n)
{
    const float4 v = *reinterpret_cast<const float4*>(x + threadIdx.x);  // misaligned_load
    y[threadIdx.x] = v.x;
}
extern "C" __global__ void misaligned_store(const float* x, float* y, int n)
{
    *reinterpret_cast<float2*>(y + 3 * threadIdx.x) = make_float2(x[0], x[1]);  // misaligned_store
}
extern "C" __global__ void misaligned_shared(const float* x, float* y, int n)
{
    extern __shared__ __align__(16) unsigned char smem[];
    float* const tile = reinterpret_cast<float*>(smem) + threadIdx.x * 6;
    *reinterpret_cast<float4*>(tile) = make_float4(x[0], x[1], x[2], x[3]);  // misaligned_shared
    y[threadIdx.x] = 0.0f;
}
extern "C" __global__ void misaligned_copy(const float* x, float* y, int n)
{
    extern __shared__ __align__(16) float tile[];
    __pipeline_memcpy_async(tile + 4 * threadIdx.x, x + 2 * threadIdx.x, 16);  // misaligned_copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = tile[4 * threadIdx.x];
}

extern "C" __global__ void no_barrier(const float* x, float* y, int n)
{
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];  // no_barrier
}
extern "C" __global__ void no_second_barrier(const float* x, float* y, int n)
{
    __shared__ float tile[64];
    float sum = 0.0f;
    for (int step = 0; step < 3; ++step) {
        tile[threadIdx.x] = x[threadIdx.x] + step;  // no_second_barrier
        __syncthreads();
        sum += tile[63 - threadIdx.x];
    }
    y[threadIdx.x] = sum;
}
extern "C" __global__ void warp_without_sync(const float* x, float* y, int n)
{
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    for (int step = 16; step > 0; step /= 2)
        if (threadIdx.x < step) tile[threadIdx.x] += tile[threadIdx.x + step];  // warp_without_sync
    if (threadIdx.x == 0) y[0] = tile[0];
}
extern "C" __global__ void shuffle_is_no_fence(const float* x, float* y, int n)
{
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    const float other = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
    y[threadIdx.x] = tile[threadIdx.x ^ 1] + other;  // shuffle_is_no_fence
}
extern "C" __global__ void same_word(const float* x, float* y, int n)
{
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (x[threadIdx.x] == x[threadIdx.x]) found = threadIdx.x;  // same_word
    __syncthreads();
    y[threadIdx.x] = found;
}
extern "C" __global__ void half_barrier(const float* x, float* y, int n)
{
    __shared__ float tile[64];
    const cooperative_groups::thread_block_tile<16> group =
        cooperative_groups::tiled_partition<16>(cooperative_groups::this_thread_block());
    tile[threadIdx.x] = x[threadIdx.x];
    group.sync();
    y[threadIdx.x] = tile[threadIdx.x ^ 16];  // half_barrier
}
extern "C" __global__ void global_race(const float* x, float* y, int n)
{
    y[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x + blockDim.x] = y[threadIdx.x ^ 1];  // global_race
}
extern "C" __global__ void global_write_race(const float* x, float* y, int n)
{
    y[threadIdx.x / 2] = x[threadIdx.x];  // global_write_race
}
extern "C" __global__ void accumulates(const float* x, float* y, int n)
{
    if (blockIdx.x == 0) y[threadIdx.x] = 0.0f;
    y[threadIdx.x] += x[threadIdx.x];  // accumulates
}
extern "C" __global__ void reads_other_block(const float* x, float* y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    if (blockIdx.x > 0) y[i] += y[i - blockDim.x];  // reads_other_block
}
extern "C" __global__ void overlapping_tiles(const float* x, float* y, int n)
{
    y[blockIdx.x * (blockDim.x - 1) + threadIdx.x] = x[threadIdx.x];  // overlapping_tiles
}
extern "C" __global__ void mixed_atomic(const float* x, float* y, int n)
{
    if (blockIdx.x == 0)
        y[threadIdx.x] = x[threadIdx.x];
    else
        atomicAdd(&y[threadIdx.x], 1.0f);  // mixed_atomic
}

extern "C" __global__ void two_barriers(const float* x, float* y, int n)
{
    if (threadIdx.x < 32) {
        __syncthreads();
        y[threadIdx.x] = 0.0f;
    } else {
        __syncthreads();  // two_barriers
        y[threadIdx.x] = 1.0f;
    }
}
extern "C" __global__ void part_of_warp_left(const float* x, float* y, int n)
{
    if (threadIdx.x >= n) return;
    __syncthreads();  // part_of_warp_left
    y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void barrier_or_warp(const float* x, float* y, int n)
{
    if (threadIdx.x == 3) {
        __syncthreads();
    } else {
        __syncwarp();  // barrier_or_warp
        __syncthreads();
    }
    y[threadIdx.x] = 0.0f;
}
extern "C" __global__ void named_barrier_short(const float* x, float* y, int n)
{
    if (threadIdx.x < 32) emulator::named_barrier(1, 64);  // named_barrier_short
    y[threadIdx.x] = 0.0f;
}

extern "C" __global__ void lane_not_in_mask(const float* x, float* y, int n)
{
    y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);  // lane_not_in_mask
}
extern "C" __global__ void lane_never_arrives(const float* x, float* y, int n)
{
    float sum = x[threadIdx.x];
    if (threadIdx.x < 16) sum += __shfl_down_sync(0xffffffffu, sum, 8);  // lane_never_arrives
    __syncthreads();
    y[threadIdx.x] = sum;
}
extern "C" __global__ void lane_has_left(const float* x, float* y, int n)
{
    if (threadIdx.x >= 20) return;
    y[threadIdx.x] = __ballot_sync(0xffffffffu, x[threadIdx.x] > 0.0f);  // lane_has_left
}
extern "C" __global__ void two_operations(const float* x, float* y, int n)
{
    if (threadIdx.x < 16)
        y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
    else
        y[threadIdx.x] = __any_sync(0xffffffffu, x[threadIdx.x] > 0.0f);  // two_operations
}

extern "C" __global__ void shared_unwritten(const float* x, float* y, int n)
{
    __shared__ float tile[64];
    if (threadIdx.x < n) tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];  // shared_unwritten
}
extern "C" __global__ void output_unwritten(const float* x, float* y, int n)
{
    y[threadIdx.x] += x[threadIdx.x];  // output_unwritten
}
extern "C" __global__ void halves_unwritten(const float* x, float* y, int n)
{
    __shared__ __half2 pairs[32];
    pairs[threadIdx.x].x = __float2half(x[threadIdx.x]);
    __syncthreads();
    const __half2 both = pairs[31 - threadIdx.x];  // halves_unwritten
    y[threadIdx.x] = __half2float(both.x) + __half2float(both.y);
}
extern "C" __global__ void atomic_unwritten(const float* x, float* y, int n)
{
    __shared__ int count;
    atomicAdd(&count, 1);  // atomic_unwritten
    __syncthreads();
    y[threadIdx.x] = count;
}

extern "C" __global__ void copy_not_waited_for(const float* x, float* y, int n)
{
    extern __shared__ __align__(16) float tile[];
    __pipeline_memcpy_async(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
    __pipeline_commit();
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];  // copy_not_waited_for
}
extern "C" __global__ void copy_of_wrong_group(const float* x, float* y, int n)
{
    extern __shared__ __align__(16) float tile[];
    for (int stage = 0; stage < 2; ++stage) {
        __pipeline_memcpy_async(tile + 128 * stage + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
        __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x] + tile[128 + threadIdx.x];  // copy_of_wrong_group
}
extern "C" __global__ void copy_without_barrier(const float* x, float* y, int n)
{
    extern __shared__ __align__(16) float tile[];
    __pipeline_memcpy_async(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = tile[4 * (threadIdx.x ^ 1)];  // copy_without_barrier
}
