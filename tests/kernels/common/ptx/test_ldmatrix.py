"""Matrices whose rows lie anywhere, as ldmatrix brings them."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.fragments import (
    G,
    P,
    pairs,
)


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(transposed: bool, cache: BuildCache) -> None:
    """Four matrices whose rows lie anywhere: every lane gives one row's address."""
    rng = np.random.default_rng(2)
    memory = rng.permutation(64 * 8).astype(np.float16).reshape(64, 8)  # 64 rows of 16 bytes
    rows = rng.permutation(64)[:32].astype(np.int32)
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(const __half* memory, const int* rows, unsigned* registers)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            for (int i = threadIdx.x; i < 512; i += 32) reinterpret_cast<__half*>(smem)[i] = memory[i];
            __syncthreads();
            uint32_t to[4];
            LOAD(to, shared_address(smem) + 16 * rows[threadIdx.x]);
            for (int i = 0; i < 4; ++i) registers[4 * threadIdx.x + i] = to[i];
        }
        """.replace("LOAD", "ldmatrix_transposed" if transposed else "ldmatrix"),
        cache,
        smem=1024,
    )
    got = kernel(memory=memory, rows=rows, registers=np.zeros((32, 4), np.int32))["registers"]
    for i in range(4):
        matrix = memory[rows[8 * i : 8 * i + 8]]
        np.testing.assert_array_equal(got[:, i], pairs(matrix.T if transposed else matrix, G, P))
