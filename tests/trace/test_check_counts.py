"""Counters of small kernels against values computed by hand."""

from typing import Any

import numpy as np
import pytest

from autotune.trace.observed import KernelTrace, LineCounters, Operation
from tests.trace.tracing import line_of, trace

CODE = r"""
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" __global__ void strided(const float* x, float* y, int stride)
{
    y[threadIdx.x] = x[threadIdx.x * stride];  // strided
}
extern "C" __global__ void offset(const float* x, float* y, int first)
{
    y[threadIdx.x] = x[threadIdx.x + first];  // offset
}
extern "C" __global__ void vectors(const float4* x, float4* y, int n)
{
    y[threadIdx.x] = x[threadIdx.x];  // vectors
}
extern "C" __global__ void halves(const __half* x, __half* y, int n)
{
    y[threadIdx.x] = x[threadIdx.x];  // halves
}
template <int PAD>
__device__ void transpose(const float* x, float* y)
{
    __shared__ float tile[32][32 + PAD];
    for (int row = threadIdx.y; row < 32; row += 8)
        tile[row][threadIdx.x] = x[row * 32 + threadIdx.x];
    __syncthreads();
    for (int row = threadIdx.y; row < 32; row += 8)
        y[row * 32 + threadIdx.x] = tile[threadIdx.x][row];
}
extern "C" __global__ void transpose_plain(const float* x, float* y, int n) { transpose<0>(x, y); }
extern "C" __global__ void transpose_padded(const float* x, float* y, int n) { transpose<1>(x, y); }

extern "C" __global__ void shared_stride(const float* x, float* y, int stride)
{
    extern __shared__ __align__(16) float tile[];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = x[i];
    __syncwarp();
    y[threadIdx.x] = tile[threadIdx.x * stride];  // shared_stride
}
extern "C" __global__ void shared_pairs(const float* x, float* y, int stride)
{
    extern __shared__ __align__(16) float tile[];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = x[i];
    __syncwarp();
    const float2 v = *reinterpret_cast<const float2*>(tile + 2 * threadIdx.x * stride);  // shared_pairs
    y[threadIdx.x] = v.x + v.y;
}
extern "C" __global__ void shared_quads(const float* x, float* y, int stride)
{
    extern __shared__ __align__(16) float tile[];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = x[i];
    __syncwarp();
    const float4 v = *reinterpret_cast<const float4*>(tile + 4 * (threadIdx.x / 2) * stride);  // shared_quads
    y[threadIdx.x] = v.x + v.w;
}
extern "C" __global__ void quads_of_all(const float* x, float* y, int stride)
{
    extern __shared__ __align__(16) float tile[];
    for (int i = threadIdx.x; i < 2048; i += 32) tile[i] = x[i];
    __syncwarp();
    const float4 v = *reinterpret_cast<const float4*>(tile + 4 * threadIdx.x * stride);  // quads_of_all
    y[threadIdx.x] = v.x + v.w;
}
extern "C" __global__ void diverged(const float* x, float* y, int n)
{
    float sum = 0.0f;
    for (int i = 0; i <= threadIdx.x / 16; ++i) sum += x[i * 32 + threadIdx.x];  // diverged
    y[threadIdx.x] = sum;  // together again
}
extern "C" __global__ void meetings(const float* x, float* y, int n)
{
    float sum = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);  // shuffles
    __syncthreads();  // barrier
    if (threadIdx.x % 32 == 0) atomicAdd(y, sum);  // atomics
    if (threadIdx.x < 8) atomicAdd(y + 1 + threadIdx.x, 1.0f);  // more atomics
}
extern "C" __global__ void vector_atomics(const float* x, float* y, int n)
{
    reinterpret_cast<float4*>(y)[threadIdx.x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    atomicAdd(reinterpret_cast<float4*>(y) + threadIdx.x, make_float4(1.0f, 2.0f, 3.0f, 4.0f));  // vector_atomics
}
extern "C" __global__ void adds(const float* x, float* y, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum = x[i] * sum + 0.5f;
    y[threadIdx.x] = expf(sum) * 3.0f;
}
extern "C" __global__ void half_adds(const __half* x, __half* y, int n)
{
    __half sum = x[0];
    for (int i = 0; i < n; ++i) sum = __hfma(sum, x[i], x[1]);
    y[threadIdx.x] = __hadd(sum, x[2]);
}
struct Lane { float value; };
inline void nothing(Lane* const lanes[32]) {}
extern "C" __global__ void products(const float* x, float* y, int n)
{
    Lane lane{x[threadIdx.x]};
    emulator::warp_compute<Lane, nothing>(lane, "mma");
    for (int i = 0; i < 2; ++i) emulator::warp_compute<Lane, nothing>(lane, "mma.m16n8k8");
    y[threadIdx.x] = lane.value;
}
extern "C" __global__ void copies(const float* x, float* y, int n)
{
    extern __shared__ __align__(16) float tile[];
    __pipeline_memcpy_async(tile + 4 * threadIdx.x, x + 4 * threadIdx.x, 16);  // copies
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = tile[4 * threadIdx.x];
}
"""


def counted(
    kernel: str, n: int = 0, *, x: int = 4096, y: int = 4096, dtype: Any = np.float32, **launch: Any
) -> KernelTrace:
    outputs = {"y": np.zeros(y, dtype)}
    result = trace(CODE, kernel, {"x": np.ones(x, dtype)}, outputs, n, **launch)
    assert result.complete
    assert not result.truncated
    return result.kernels[0]


def row(kernel: KernelTrace, marker: str, operation: Operation) -> LineCounters:
    line = line_of(CODE, marker)
    (found,) = [counters for counters in kernel.of(operation) if counters.place.line == line]
    return found


@pytest.mark.parametrize(("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (4, 16), (8, 32), (100, 32)])
def test_strided_loads(stride: int, sectors: int) -> None:
    load = row(counted("strided", stride), "strided", "global load")
    assert (load.requests, load.lanes, load.sectors) == (1, 32, sectors)
    assert load.ideal_sectors == (1 if stride == 0 else 4)
    store = row(counted("strided", stride), "strided", "global store")
    assert (store.requests, store.sectors, store.ideal_sectors) == (1, 4, 4)


@pytest.mark.parametrize(("first", "sectors"), [(0, 4), (8, 4), (1, 5), (7, 5)])
def test_loads_that_do_not_begin_at_a_sector(first: int, sectors: int) -> None:
    assert row(counted("offset", first), "offset", "global load").sectors == sectors


def test_vectors_are_one_request() -> None:
    kernel = counted("vectors", block=(64, 1, 1))
    for operation in ("global load", "global store"):
        counters = row(kernel, "vectors", operation)
        assert (counters.nbytes, counters.requests, counters.lanes) == (16, 2, 64)
        assert (counters.sectors, counters.ideal_sectors) == (32, 32)


def test_halves() -> None:
    load = row(counted("halves", dtype=np.float16), "halves", "global load")
    assert (load.nbytes, load.requests, load.sectors) == (2, 1, 2)


def test_a_part_of_a_warp() -> None:
    load = row(counted("strided", 1, block=(40, 1, 1)), "strided", "global load")
    assert (load.requests, load.lanes, load.sectors) == (2, 40, 5)


@pytest.mark.parametrize(
    ("kernel", "wavefronts", "worst"), [("transpose_plain", 32 * 32, 32), ("transpose_padded", 32, 1)]
)
def test_transpose(kernel: str, wavefronts: int, worst: int) -> None:
    counts = counted(kernel, block=(32, 8, 1))
    (load,) = counts.of("shared load")
    (store,) = counts.of("shared store")
    assert (load.requests, load.wavefronts, load.ideal_wavefronts, load.worst) == (32, wavefronts, 32, worst)
    assert (store.requests, store.wavefronts, store.conflicts) == (32, 32, 0)
    assert counts.conflicts == wavefronts - 32
    (barrier,) = counts.of("barrier")
    assert (barrier.requests, barrier.lanes) == (8, 256)


@pytest.mark.parametrize(("stride", "wavefronts"), [(0, 1), (1, 1), (2, 2), (3, 1), (4, 4), (32, 32), (33, 1)])
def test_shared_loads_of_four_bytes(stride: int, wavefronts: int) -> None:
    load = row(counted("shared_stride", stride, smem=8192), "shared_stride", "shared load")
    assert (load.requests, load.wavefronts, load.ideal_wavefronts) == (1, wavefronts, 1)


@pytest.mark.parametrize(("stride", "wavefronts"), [(0, 1), (1, 2), (2, 4), (3, 2), (16, 32)])
def test_shared_loads_of_eight_bytes(stride: int, wavefronts: int) -> None:
    """Half a warp at a time; all lanes on one address are served at once."""
    load = row(counted("shared_pairs", stride, smem=8192), "shared_pairs", "shared load")
    assert (load.nbytes, load.wavefronts, load.ideal_wavefronts) == (8, wavefronts, 1 if stride == 0 else 2)


@pytest.mark.parametrize(("stride", "wavefronts"), [(0, 2), (1, 4), (2, 8), (8, 32)])
def test_shared_loads_of_sixteen_bytes(stride: int, wavefronts: int) -> None:
    """A quarter of a warp at a time."""
    load = row(counted("quads_of_all", stride, smem=8192), "quads_of_all", "shared load")
    assert (load.nbytes, load.wavefronts) == (16, wavefronts)
    assert load.conflicts == (0 if stride <= 1 else wavefronts - 4)


def test_pairs_of_lanes_on_one_address_are_served_in_half_the_time() -> None:
    load = row(counted("shared_quads", 1, smem=8192), "shared_quads", "shared load")
    assert (load.wavefronts, load.conflicts) == (2, 0)


def test_diverged_lanes_come_together_again() -> None:
    kernel = counted("diverged")
    load = row(kernel, "diverged", "global load")
    assert (load.requests, load.lanes, load.sectors) == (2, 48, 4 + 2)
    store = row(kernel, "together again", "global store")
    assert (store.requests, store.sectors) == (1, 4)


def test_meetings_and_atomics() -> None:
    kernel = counted("meetings", block=(64, 1, 1), grid=(3, 1, 1))
    assert row(kernel, "shuffles", "shuffle").requests == 3 * 2 * 5
    assert row(kernel, "barrier", "barrier").requests == 3 * 2
    atomics = row(kernel, "atomics", "global atomic")
    assert (atomics.requests, atomics.lanes) == (6, 6)
    more = row(kernel, "more atomics", "global atomic")
    assert (more.requests, more.lanes, more.sectors) == (3, 24, 3 * 2)


def test_an_atomic_operation_on_a_vector_is_one_request() -> None:
    atomics = row(counted("vector_atomics"), "vector_atomics", "global atomic")
    assert (atomics.nbytes, atomics.requests, atomics.lanes, atomics.sectors) == (16, 1, 32, 16)


def test_arithmetic() -> None:
    found = counted("adds", 10, block=(64, 1, 1)).arithmetic
    assert (found.fp32, found.special) == (64 * (10 * 2 + 1), 64)
    assert found.fp16 == found.fp64 == 0


def test_arithmetic_on_halves() -> None:
    found = counted("half_adds", 10, dtype=np.float16).arithmetic
    assert (found.fp16, found.fp32) == (32 * (10 * 2 + 1), 0)


def test_asynchronous_copies() -> None:
    kernel = counted("copies", smem=512)
    load = row(kernel, "copies", "global load")
    assert (load.nbytes, load.requests, load.sectors) == (16, 1, 16)
    copy = row(kernel, "copies", "async copy")
    assert (copy.requests, copy.wavefronts) == (1, 4)


def test_sampled_blocks_scale_to_all() -> None:
    whole = counted("meetings", block=(64, 1, 1), grid=(40, 1, 1))
    part = counted("meetings", block=(64, 1, 1), grid=(40, 1, 1), blocks=4)
    assert (len(whole.traced), whole.scale) == (40, 1.0)
    assert part.traced == (0, 10, 20, 39)
    assert part.requests("shuffle") == pytest.approx(whole.requests("shuffle"))
    assert part.sectors("global load") == pytest.approx(whole.sectors("global load"))


def test_products_of_tensor_cores_by_their_depth() -> None:
    kernel = counted("products", block=(64, 1, 1))
    assert {row.nbytes: row.requests for row in kernel.of("tensor")} == {16 * 8 * 16: 2, 16 * 8 * 8: 4}
    assert kernel.tensor_operations == 2 * (2 * 16 * 8 * 16 + 4 * 16 * 8 * 8)
