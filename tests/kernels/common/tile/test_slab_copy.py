"""Tiles of slabs: by TMA in and out, and from accumulators, where wgmma and TMA look for them."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.plan import TensorMapArg
from tests.emulator.small_kernel import SmallKernel

KERNEL = """
#include "common/ptx/fences.cuh"
#include "common/ptx/mbarrier.cuh"
#include "common/tile/slab_copy.cuh"
using Tile = SlabTile<128, COLS>;
extern "C" __global__ void __launch_bounds__(128) test(const __half*, __half*, const float* sums,
                                                       const __grid_constant__ TensorMap x_map,
                                                       const __grid_constant__ TensorMap out_map)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const SharedAddress tile = shared_address(memory), full = tile + Tile::BYTES;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect(full, Tile::BYTES);
        load_slabs<Tile>(tile, x_map, full, {0, 8});
    }
    mbarrier_wait(full, 0);
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    float x[COLS / 2];
    for (int i = 0; i < COLS / 2; ++i) x[i] = sums[(row + i / 2 % 2 * 8) * COLS + i / 4 * 8 + col + i % 2];
    place_accumulators<Tile, __half>(tile, 64, x, 0.5f);
    fence_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_slabs<Tile>(out_map, {0, 0}, tile, 0);
        store_slabs<Tile>(out_map, {0, 64}, tile, 64);
        bulk_commit();
        bulk_wait<0>();
    }
}
"""


@pytest.mark.parametrize("cols", [16, 32, 48, 96])
def test_tiles_in_and_out(cols: int, cache: BuildCache) -> None:
    """64 rows as they came, 64 from accumulators; what lies beyond the tensor is not written."""
    slab = 16 if cols == 16 else 32 if cols == 32 else 64
    random = np.random.default_rng(cols)
    x = random.standard_normal((140, cols)).astype(np.float16)
    sums = random.standard_normal((64, cols)).astype(np.float32)
    out = np.full((130, cols), 7, np.float16)

    def tensor_map(name: str, rows: int, box: int, role: str) -> TensorMapArg:
        return TensorMapArg(
            f"{name}_map",
            name,
            0,
            "fp16",
            (cols, rows),
            (1, cols),
            (slab, box),
            2 * slab,
            role,  # type: ignore[arg-type]
        )

    maps = (tensor_map("x", 140, 128, "output"), tensor_map("out", 120, 64, "output"))
    smem = 128 * 2 * slab * -(-cols // slab) + 16
    kernel = SmallKernel(KERNEL.replace("COLS", str(cols)), cache, threads=128, smem=smem, maps=maps)
    got = kernel(x=x, out=out, sums=sums)["out"]
    np.testing.assert_array_equal(got[:64], x[8:72])
    np.testing.assert_array_equal(got[64:120], (sums * 0.5).astype(np.float16)[:56])
    np.testing.assert_array_equal(got[120:], 7)


TRANSPOSED = """
#include "common/tile/slab_copy.cuh"
using Tile = SlabTile<48, 128>;
extern __shared__ __align__(1024) unsigned char smem[];
extern "C" __global__ void __launch_bounds__(128) test(const float* sums, __half* out)
{
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    float x[16];
    for (int i = 0; i < 16; ++i) x[i] = sums[(row + i / 2 % 2 * 8) * 32 + i / 4 * 8 + col + i % 2];
    place_transposed<Tile, __half>(shared_address(smem), 16, 64, x, 0.5f);
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * 64; i += 128)
        out[i] = *reinterpret_cast<const __half*>(smem + Tile::offset(16 + i / 64, 64 + i % 64 / 8 * 8) + i % 8 * 2);
}
"""


def test_accumulators_transposed(cache: BuildCache) -> None:
    sums = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    kernel = SmallKernel(TRANSPOSED, cache, threads=128, smem=48 * 256)
    got = kernel(sums=sums, out=np.zeros((32, 64), np.float16))["out"]
    np.testing.assert_array_equal(got, (sums.T * 0.5).astype(np.float16))
