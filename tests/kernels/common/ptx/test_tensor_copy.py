"""TMA against NumPy: boxes of tensors of every rank, every swizzle, out of the tensor too; runs of bytes; sums."""

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from autotune.core.plan import TensorMapArg
from tests.emulator.small_kernel import SmallKernel

CTYPES = {"__half": ("fp16", np.float16), "__nv_bfloat16": ("bf16", ml_dtypes.bfloat16), "float": ("fp32", np.float32)}
SMEM = 32768  # a barrier lies behind
FILLED = 0.25  # what shared memory holds before a copy

HEADERS = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/ptx/tensor_copy.cuh"
extern __shared__ __align__(1024) unsigned char memory[];
__device__ SharedAddress barrier() { return shared_address(memory) + 32768; }
__device__ void begin()
{
    for (int i = threadIdx.x; i < 32768 / 4; i += 32) reinterpret_cast<float*>(memory)[i] = 0.25f;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier(), 1);
        fence_mbarrier_init();
    }
    fence_async_shared();
    __syncthreads();
}
__device__ void show(float* to)
{
    for (int i = threadIdx.x; i < 32768 / 4; i += 32) to[i] = reinterpret_cast<float*>(memory)[i];
}
"""

LOAD = """
extern "C" __global__ void test(const CTYPE*, const int* at, const int* bytes, float* shown,
                                const __grid_constant__ TensorMap map)
{
    begin();
    const SharedAddress here = barrier();
    if (threadIdx.x == 0) {
        prefetch(map);
        mbarrier_arrive_expect(here, bytes[0]);
        tensor_load(shared_address(memory), map, here, {COORDINATES});
    }
    mbarrier_wait(here, 0);
    show(shown);
}
"""


def tensor_map(
    shape: tuple[int, ...], box: tuple[int, ...], swizzle: int, dtype: str, strides: tuple[int, ...] | None = None
) -> TensorMapArg:
    """Of buffer x; shape and box with the contiguous dimension first."""
    packed = tuple(int(np.prod(shape[:i], dtype=np.int64)) for i in range(len(shape)))
    return TensorMapArg("x_map", "x", 0, dtype, shape, strides or packed, box, swizzle, "input")


def box_of(x: NDArray[Any], at: tuple[int, ...], box: tuple[int, ...]) -> NDArray[Any]:
    """A box of a tensor, zeros where it lies outside; x has the contiguous dimension last, `at` and `box` first."""
    found = np.zeros(box[::-1], x.dtype)
    places = [start + np.arange(n) for start, n in zip(at[::-1], box[::-1], strict=True)]
    inside = [(place >= 0) & (place < n) for place, n in zip(places, x.shape, strict=True)]
    found[np.ix_(*inside)] = x[np.ix_(*(place[there] for place, there in zip(places, inside, strict=True)))]
    return found


def exchanged(line_bytes: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Bytes as a swizzle of this width lays them out from an aligned start."""
    offset = np.arange(line_bytes.size)
    lines = {128: offset // 128 % 8, 64: offset // 128 % 4, 32: offset // 128 % 2, 0: 0 * offset}[width]
    laid_out = np.empty_like(line_bytes)
    laid_out[offset ^ lines * 16] = line_bytes
    return laid_out


def numbered(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Every element its own number, small enough for the type; x has the contiguous dimension last."""
    return (np.arange(np.prod(shape)) % 251 - 125).astype(np.float32).astype(dtype).reshape(shape[::-1])


BOXES = [
    ((64,), (32,), [(0,), (48,), (-16,)]),
    ((80, 21), (64, 8), [(0, 0), (64, 16), (-8, -3), (16, 19)]),
    ((64, 9, 5), (64, 4, 3), [(0, 0, 0), (0, 7, 4), (0, -2, -1)]),
    ((64, 3, 7, 2), (64, 1, 6, 1), [(0, 2, 3, 1), (0, 1, -2, 0)]),
    ((16, 3, 2, 3, 4), (16, 2, 2, 1, 3), [(0, 0, 0, 0, 0), (8, 2, 1, 2, 2), (-8, -1, -1, 1, -1)]),
]


@pytest.mark.parametrize("ctype", CTYPES)
@pytest.mark.parametrize(("shape", "box", "places"), BOXES, ids=[f"{len(shape)}d" for shape, _, _ in BOXES])
def test_a_load_brings_the_box(
    ctype: str, shape: tuple[int, ...], box: tuple[int, ...], places: list[tuple[int, ...]], cache: BuildCache
) -> None:
    """Wherever it lies, what is out of the tensor as zeros; nothing else of shared memory changes."""
    name, dtype = CTYPES[ctype]
    x = numbered(shape, dtype)
    for at, swizzle in product(places, (0, 32, 64, 128)):
        fitting = box if not swizzle else (swizzle // x.itemsize, *box[1:])  # rows fill the swizzle
        body = LOAD.replace("CTYPE", ctype).replace("COORDINATES", ", ".join(f"at[{i}]" for i in range(len(shape))))
        kernel = SmallKernel(HEADERS + body, cache, smem=SMEM + 16, maps=[tensor_map(shape, fitting, swizzle, name)])
        wanted = exchanged(np.ascontiguousarray(box_of(x, at, fitting)).reshape(-1).view(np.uint8), swizzle)
        got = kernel(
            x=x,
            at=np.array(at, np.int32),
            bytes=np.array([wanted.size], np.int32),
            shown=np.zeros(SMEM // 4, np.float32),
        )["shown"]
        np.testing.assert_array_equal(got.view(np.uint8)[: wanted.size], wanted, err_msg=f"{at} {swizzle}")
        assert (got[wanted.size // 4 :] == FILLED).all()


def test_a_load_follows_the_strides(cache: BuildCache) -> None:
    """Dimensions in any order and apart: (B, T, NH, HS) seen as (HS, T, NH, B), with a gap behind each row."""
    batch, length, heads, size, gap = 2, 6, 3, 16, 8
    memory = np.arange(batch * length * heads * (size + gap)).astype(np.float16)
    x = memory.reshape(batch, length, heads, size + gap)[..., :size].transpose(0, 2, 1, 3)
    row = size + gap
    strides = (1, heads * row, row, length * heads * row)
    described = tensor_map((size, length, heads, batch), (size, 4, 2, 1), 0, "fp16", strides)
    body = LOAD.replace("CTYPE", "__half").replace("COORDINATES", "at[0], at[1], at[2], at[3]")
    kernel = SmallKernel(HEADERS + body, cache, smem=SMEM + 16, maps=[described])
    at = (0, 3, 1, 1)
    wanted = box_of(x, at, (size, 4, 2, 1)).reshape(-1)
    got = kernel(
        x=memory,
        at=np.array(at, np.int32),
        bytes=np.array([wanted.nbytes], np.int32),
        shown=np.zeros(SMEM // 4, np.float32),
    )["shown"]
    np.testing.assert_array_equal(got.view(np.float16)[: wanted.size], wanted)


STORE = """
extern "C" __global__ void test(CTYPE*, const int* at, const CTYPE* from, const __grid_constant__ TensorMap map)
{
    begin();
    for (int i = threadIdx.x; i < ELEMENTS; i += 32) reinterpret_cast<CTYPE*>(memory)[i] = from[i];
    fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        HOW(map, {at[0], at[1], at[2]}, shared_address(memory));
        bulk_commit();
        bulk_wait_read<0>();
        bulk_wait<0>();
    }
}
"""


@pytest.mark.parametrize(("ctype", "how"), [*((ctype, "tensor_store") for ctype in CTYPES), ("float", "tensor_add")])
@pytest.mark.parametrize("at", [(0, 0, 0), (16, 5, 1), (40, 6, 2)])
def test_a_store_writes_what_lies_in_the_tensor(ctype: str, how: str, at: tuple[int, ...], cache: BuildCache) -> None:
    name, dtype = CTYPES[ctype]
    shape, box = (48, 7, 3), (32, 4, 2)
    for swizzle in (0, 32, 64, 128):
        fitting = box if not swizzle else (swizzle // np.dtype(dtype).itemsize, *box[1:])
        elements = int(np.prod(fitting))
        new = numbered(fitting, dtype)
        x = (numbered(shape, np.float32) + 0.5).astype(dtype)
        body = STORE.replace("CTYPE", ctype).replace("ELEMENTS", str(elements)).replace("HOW", how)
        kernel = SmallKernel(HEADERS + body, cache, smem=SMEM + 16, maps=[tensor_map(shape, fitting, swizzle, name)])
        laid_out = exchanged(new.reshape(-1).view(np.uint8), swizzle).view(dtype)
        got = kernel(x=x, at=np.array(at, np.int32), **{"from": laid_out})["x"]
        wanted = x.copy()
        for index in np.ndindex(new.shape):
            place = tuple(i + start for i, start in zip(index, at[::-1], strict=True))
            if all(0 <= i < n for i, n in zip(place, x.shape, strict=True)):
                wanted[place] = new[index] + (x[place] if how == "tensor_add" else 0)
        np.testing.assert_array_equal(got, wanted, err_msg=str(swizzle))


RUNS = """
extern "C" __global__ void test(const float* x, float* stored, float* added, float* shown)
{
    begin();
    const SharedAddress here = barrier(), to = shared_address(memory);
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(here, 512 + 48);
        bulk_load(to + 64, x + 4, 512, here);
        bulk_load(to + 1024, x, 48, here);
    }
    mbarrier_wait(here, 0);
    show(shown);
    if (threadIdx.x == 0) {
        bulk_store(stored + 8, to + 64, 512);
        bulk_commit();
        bulk_add(added + 4, to + 1024, 48);
        bulk_add(added + 8, to + 1024, 32);
        bulk_commit();
        bulk_wait<0>();
    }
}
"""


def test_runs_of_bytes(cache: BuildCache) -> None:
    x = np.arange(140, dtype=np.float32)
    empty = np.full(160, -1.0, np.float32)
    results = SmallKernel(HEADERS + RUNS, cache, smem=SMEM + 16)(
        x=x, stored=empty, added=empty, shown=np.zeros(SMEM // 4, np.float32)
    )
    shown = np.full(SMEM // 4, FILLED, np.float32)
    shown[16:144], shown[256:268] = x[4:132], x[:12]
    np.testing.assert_array_equal(results["shown"], shown)
    stored, added = empty.copy(), empty.copy()
    stored[8:136] = x[4:132]
    added[4:16] += x[:12]
    added[8:16] += x[:8]
    np.testing.assert_array_equal(results["stored"], stored)
    np.testing.assert_array_equal(results["added"], added)


POLICIES = """
extern "C" __global__ void test(const float*, float* shown, const __grid_constant__ TensorMap map)
{
    begin();
    const SharedAddress here = barrier(), to = shared_address(memory);
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(here, 2 * 256);
        tensor_load(to, map, here, {0, 1}, l2_evict_first());
        tensor_load(to + 256, map, here, {16, 2}, l2_evict_last());
    }
    mbarrier_wait(here, 0);
    show(shown);
}
"""


def test_policies_change_no_value(cache: BuildCache) -> None:
    x = numbered((32, 8), np.float32)
    kernel = SmallKernel(HEADERS + POLICIES, cache, smem=SMEM + 16, maps=[tensor_map((32, 8), (16, 4), 0, "fp32")])
    shown = kernel(x=x, shown=np.zeros(SMEM // 4, np.float32))["shown"]
    np.testing.assert_array_equal(shown[:64], x[1:5, :16].reshape(-1))
    np.testing.assert_array_equal(shown[64:128], x[2:6, 16:].reshape(-1))
