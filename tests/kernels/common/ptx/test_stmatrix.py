"""What ldmatrix reads, stmatrix writes."""

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


@pytest.mark.parametrize("suffix", ["", "_transposed"])
def test_stmatrix(suffix: str, cache: BuildCache) -> None:
    """What ldmatrix reads, stmatrix writes: rows change places, and nothing else is touched."""
    rng = np.random.default_rng(3)
    memory = rng.permutation(64 * 8).astype(np.float16).reshape(64, 8)  # 64 rows of 16 bytes
    source, target = (rng.permutation(64)[:32].astype(np.int32) for _ in range(2))
    kernel = SmallKernel(
        """
        #include "common/ptx/ldmatrix.cuh"
        #include "common/ptx/stmatrix.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(__half* memory, const int* source, const int* target)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            for (int i = threadIdx.x; i < 512; i += 32) reinterpret_cast<__half*>(smem)[i] = memory[i];
            __syncthreads();
            uint32_t registers[4];
            ldmatrix_SUFFIX(registers, shared_address(smem) + 16 * source[threadIdx.x]);
            stmatrix_SUFFIX(shared_address(smem) + 16 * target[threadIdx.x], registers);
            __syncthreads();
            for (int i = threadIdx.x; i < 512; i += 32) memory[i] = reinterpret_cast<__half*>(smem)[i];
        }
        """.replace("_SUFFIX", suffix),
        cache,
        smem=1024,
    )
    expected = memory.copy()
    expected[target] = memory[source]
    got = kernel(memory=memory, source=source, target=target)["memory"]
    np.testing.assert_array_equal(got.reshape(64, 8), expected)
