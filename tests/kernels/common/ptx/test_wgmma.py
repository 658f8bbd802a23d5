"""wgmma against NumPy: every width, type and source of A; every swizzle, both orders of each operand."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

CTYPES = {
    "__half": np.dtype(np.float16),
    "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
}
WIDTHS = range(8, 257, 8)
ROWS, THREADS = 64, 128
B_PLACE = 16384  # bytes of shared memory before B

THREAD = np.arange(THREADS)
ROW, PAIR = THREAD // 32 * 16 + THREAD % 32 // 4, THREAD % 4 * 2


def swizzled(offset: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Where a byte goes: 16-byte chunks of a line of 128 bytes change places with the line's number in its eight."""
    lines = {128: offset // 128 % 8, 64: offset // 128 % 4, 32: offset // 128 % 2, 16: 0 * offset}[width]
    return offset ^ (lines * 16)


@dataclass(frozen=True)
class Layout:
    """How an operand lies in shared memory: lines of `width` bytes, of neighbouring k (transposed: rows or columns)."""

    width: int
    transposed: bool
    depth: int  # k
    nbytes: int = 2  # an element's

    @property
    def leading(self) -> int:
        """The first distance of a descriptor."""
        if self.width == 16:
            return 128
        return self.stride * (self.depth // 8) if self.transposed else 16

    @property
    def stride(self) -> int:
        """The second. Without a swizzle with a gap, so that the two are seen to be told apart."""
        return 8 * self.width if self.width > 16 else 128 * (self.depth * self.nbytes // 16) + 256

    @property
    def step(self) -> int:
        """From the operand of one product to that of the next k."""
        if self.width == 16:
            return 2 * self.leading
        return 2 * self.stride if self.transposed else 32

    def offset(self, line: NDArray[Any], k: NDArray[Any]) -> NDArray[Any]:
        """Bytes from the start to an element; `line` is its row of A or column of B."""
        chunk, across = 16 // self.nbytes, max(1, self.width // 2)
        place: NDArray[Any]
        if self.width == 16 and self.transposed:
            place = line // 8 * self.stride + k // 8 * self.leading + k % 8 * 16 + line % 8 * 2
        elif self.width == 16:
            place = line // 8 * self.stride + k // chunk * self.leading + line % 8 * 16 + k % chunk * self.nbytes
        elif self.transposed:
            place = line // across * self.leading + k // 8 * self.stride + k % 8 * self.width + line % across * 2
        else:
            place = line // 8 * self.stride + line % 8 * self.width + k * self.nbytes
        return swizzled(place, self.width)

    def image(self, operand: NDArray[Any]) -> NDArray[np.uint8]:
        """Shared memory that holds an operand of (rows or columns, k)."""
        indices: NDArray[Any] = np.indices(operand.shape)
        place = self.offset(indices[0], indices[1])[..., None] + np.arange(self.nbytes)
        memory = np.zeros(int(place.max()) + 1, np.uint8)
        memory[place] = np.ascontiguousarray(operand)[..., None].view(np.uint8)
        return memory


def shared_image(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int32]:
    memory = np.zeros(B_PLACE + 49152, np.uint8)
    memory[: a.size], memory[B_PLACE : B_PLACE + b.size] = a, b
    return memory.view(np.int32)


def registers_of(a: NDArray[Any]) -> NDArray[np.int32]:
    """(steps, threads, 4): A as a warp group's registers hold it."""
    if a.dtype.itemsize == 4:
        k = 8 * np.arange(a.shape[1] // 8)[:, None]
        quads = [a[ROW + i % 2 * 8, k + THREAD % 4 + i // 2 * 4] for i in range(4)]
        return np.stack(quads, axis=-1).view(np.int32)
    k = 16 * np.arange(a.shape[1] // 16)[:, None] + PAIR
    pairs = [[a[ROW + i % 2 * 8, k + i // 2 * 8 + j] for j in range(2)] for i in range(4)]
    return np.ascontiguousarray(np.moveaxis(np.array(pairs, a.dtype), (0, 1), (2, 3))).view(np.int32)[..., 0]


def matrix_of(d: NDArray[Any], columns: int) -> NDArray[Any]:
    """The 64 x columns matrix that the threads' accumulators hold."""
    matrix = np.zeros((ROWS, columns), d.dtype)
    for i in range(columns // 2):
        matrix[ROW + i % 4 // 2 * 8, i // 4 * 8 + PAIR + i % 2] = d[:, i]
    return matrix


def random(rng: np.random.Generator, lines: int, depth: int, ctype: str) -> NDArray[Any]:
    return rng.standard_normal((lines, depth)).astype(np.float32).round(3).astype(CTYPES[ctype])


def expected(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    return seen(a) @ seen(b).T


def seen(x: NDArray[Any]) -> NDArray[np.float64]:
    """What the instruction sees of an operand: of a float its upper 19 bits."""
    if x.dtype == np.float32:
        x = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return x.astype(np.float64)


LOADED = """
#include "common/ptx/fences.cuh"
#include "common/ptx/wgmma.cuh"
#define B_PLACE 16384
extern __shared__ __align__(1024) unsigned char memory[];
__device__ void fill(const int* image)
{
    for (int i = threadIdx.x; i < (B_PLACE + 49152) / 4; i += 128) reinterpret_cast<int*>(memory)[i] = image[i];
    fence_async_shared();
    __syncthreads();
}
"""

ALL_WIDTHS = """
template <int N>
__device__ __forceinline__ void multiply(const uint32_t* a, float* d)
{
    const SharedAddress start = shared_address(memory);
    const uint64_t at = wgmma_descriptor<128>(start, 16, 1024), bt = wgmma_descriptor<128>(start + B_PLACE, 16, 1024);
    float shared[N / 2], held[N / 2];
    uint32_t registers[2][4];
    for (int i = 0; i < N / 2; ++i) shared[i] = held[i] = 1.0f;
#pragma unroll
    for (int step = 0; step < 2; ++step)
        for (int i = 0; i < 4; ++i) registers[step][i] = a[(step * 128 + threadIdx.x) * 4 + i];
    wgmma_fence(shared, held, registers[0], registers[1]);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
        wgmma<CTYPE, N>(shared, wgmma_advance(at, 32 * step), wgmma_advance(bt, 32 * step), step);
        wgmma<CTYPE, N>(held, registers[step], wgmma_advance(bt, 32 * step), 1);
    }
    wgmma_commit();
    wgmma_wait<0>(shared, held);
    float* const to = d + (N / 8 - 1) * 2 * 128 * 128 + threadIdx.x * 128;
    for (int i = 0; i < N / 2; ++i) to[i] = shared[i], to[128 * 128 + i] = held[i];
    if constexpr (N < 256) multiply<N + 8>(a, d);
}
extern "C" __global__ void test(const int* image, const uint32_t* a, float* d)
{
    fill(image);
    multiply<8>(a, d);
}
"""


@pytest.mark.parametrize("ctype", CTYPES)
def test_wgmma_of_every_width(ctype: str, cache: BuildCache) -> None:
    """Two products in a row; from shared memory the first sets D, from registers it adds to the ones there."""
    rng = np.random.default_rng(1)
    nbytes = CTYPES[ctype].itemsize
    depth = 64 // nbytes
    layout = Layout(128, False, 128 // nbytes, nbytes)
    a, b = (random(rng, lines, depth, ctype) for lines in (ROWS, 256))
    kernel = SmallKernel(LOADED + ALL_WIDTHS.replace("CTYPE", ctype), cache, threads=THREADS, smem=B_PLACE + 49152)
    d = kernel(
        image=shared_image(layout.image(a), layout.image(b)),
        a=registers_of(a),
        d=np.full((len(WIDTHS), 2, THREADS, 128), np.nan, np.float32),
    )["d"]
    want = expected(a, b)
    tolerance = 1e-5 if nbytes == 2 else 2e-4  # the hardware truncates sums of tf32 products
    for i, columns in enumerate(WIDTHS):
        for source, start in ((0, 0.0), (1, 1.0)):
            got = matrix_of(d[i, source], columns)
            np.testing.assert_allclose(
                got, start + want[:, :columns], rtol=tolerance, atol=tolerance, err_msg=str(columns)
            )
            assert np.isnan(d[i, source, :, columns // 2 :]).all()


EVERY_LAYOUT = """
__device__ uint64_t any_tile(int swizzle, SharedAddress start, int leading, int stride)
{
    return swizzle == 128  ? wgmma_descriptor<128>(start, leading, stride)
           : swizzle == 64 ? wgmma_descriptor<64>(start, leading, stride)
           : swizzle == 32 ? wgmma_descriptor<32>(start, leading, stride)
                           : wgmma_descriptor<16>(start, leading, stride);
}
template <int N, bool A_TRANSPOSED, bool B_TRANSPOSED>
__device__ __forceinline__ void multiply(const int* how, const uint32_t* a, float* d)
{
    const uint64_t at = any_tile(how[4], shared_address(memory), how[5], how[6]);
    const uint64_t bt = any_tile(how[8], shared_address(memory) + B_PLACE, how[9], how[10]);
    float sum[N / 2];
    for (int i = 0; i < N / 2; ++i) sum[i] = 0;
    for (int step = 0; step < how[12]; ++step) {
        uint32_t registers[4];
        for (int i = 0; i < 4; ++i) registers[i] = a[(step * 128 + threadIdx.x) * 4 + i];
        wgmma_fence(sum, registers);
        const uint64_t a_step = wgmma_advance(at, how[7] * step), b_step = wgmma_advance(bt, how[11] * step);
        if (how[3])
            wgmma<CTYPE, N, B_TRANSPOSED>(sum, registers, b_step, 1);
        else
            wgmma<CTYPE, N, A_TRANSPOSED, B_TRANSPOSED>(sum, a_step, b_step, 1);
        wgmma_commit();
        wgmma_wait<0>(sum);
    }
    for (int i = 0; i < N / 2; ++i) d[threadIdx.x * (N / 2) + i] = sum[i];
}
template <int N>
__device__ void dispatch(const int* how, const uint32_t* a, float* d)
{
    if (how[0] != N) return;
    if (how[1] && how[2]) multiply<N, true, true>(how, a, d);
    if (how[1] && !how[2]) multiply<N, true, false>(how, a, d);
    if (!how[1] && how[2]) multiply<N, false, true>(how, a, d);
    if (!how[1] && !how[2]) multiply<N, false, false>(how, a, d);
}
extern "C" __global__ void test(const int* image, const int* how, const uint32_t* a, float* d)
{
    fill(image);
    dispatch<8>(how, a, d);
    dispatch<96>(how, a, d);
    dispatch<256>(how, a, d);
}
"""


def multiplied(
    a: NDArray[Any], b: NDArray[Any], layouts: tuple[Layout, Layout], images: tuple[Layout, Layout], ctype: str,
    from_registers: bool, cache: BuildCache,
) -> NDArray[Any]:  # fmt: skip
    """A B^T by descriptors that say `layouts` of memory that is laid out as `images`."""
    kernel = SmallKernel(LOADED + EVERY_LAYOUT.replace("CTYPE", ctype), cache, threads=THREADS, smem=B_PLACE + 49152)
    columns, steps = b.shape[0], a.shape[1] // 16
    told = [number for layout in layouts for number in (layout.width, layout.leading, layout.stride, layout.step)]
    how = np.array([columns, *(layout.transposed for layout in layouts), from_registers, *told, steps], np.int32)
    image = shared_image(*(layout.image(operand) for layout, operand in zip(images, (a, b), strict=True)))
    empty = np.full((THREADS, columns // 2), np.nan, np.float32)
    return matrix_of(kernel(image=image, how=how, a=registers_of(a), d=empty)["d"], columns)


@pytest.mark.parametrize("ctype", ["__half", "__nv_bfloat16"])
@pytest.mark.parametrize("from_registers", [False, True])
@pytest.mark.parametrize("columns", [8, 96, 256])
def test_wgmma_of_every_layout(ctype: str, from_registers: bool, columns: int, cache: BuildCache) -> None:
    rng = np.random.default_rng(columns)
    swizzles, orders = (128, 64, 32, 16), (False, True)
    for width, a_transposed, b_transposed in product(swizzles, orders, orders):
        if from_registers and a_transposed:
            continue
        depth = max(16, width // 2) if width > 16 else 32  # all k of one line
        a, b = (random(rng, lines, depth, ctype) for lines in (ROWS, columns))
        layouts = (Layout(width, a_transposed, depth), Layout(width, b_transposed, depth))
        got = multiplied(a, b, layouts, layouts, ctype, from_registers, cache)
        np.testing.assert_allclose(got, expected(a, b), rtol=1e-5, atol=1e-5, err_msg=str(layouts))


@pytest.mark.parametrize(
    ("told", "laid_out"),
    [
        (Layout(128, False, 64), Layout(128, True, 64)),
        (Layout(64, False, 32), Layout(32, False, 32)),
        (Layout(128, True, 16), Layout(64, True, 16)),
        (Layout(16, False, 16), Layout(16, True, 16)),
    ],
)
def test_wgmma_of_a_wrong_layout_is_wrong(told: Layout, laid_out: Layout, cache: BuildCache) -> None:
    rng = np.random.default_rng(3)
    a, b = (random(rng, lines, told.depth, "__half") for lines in (ROWS, 96))
    right = Layout(128, False, told.depth)
    got = multiplied(a, b, (right, told), (right, laid_out), "__half", False, cache)
    assert np.abs(got - expected(a, b)).max() > 0.5
