"""Tensor maps as kernels take them: by value, where the driver wants them, whole."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel
from tests.kernels.common.ptx.test_tensor_copy import tensor_map


def test_maps_are_128_bytes_in_lines_of_64(cache: BuildCache) -> None:
    """Two of them behind a pointer; fetching one early changes nothing."""
    kernel = SmallKernel(
        """
        #include "common/ptx/tensor_map.cuh"
        extern "C" __global__ void test(const float* x, int* y, const __grid_constant__ TensorMap first,
                                        const __grid_constant__ TensorMap second)
        {
            if (threadIdx.x != 0) return;
            prefetch(first);
            prefetch(second);
            y[0] = sizeof(TensorMap);
            y[1] = reinterpret_cast<uintptr_t>(&first) % 64;
            y[2] = reinterpret_cast<uintptr_t>(&second) % 64;
            y[3] = static_cast<int>(x[5]);
        }
        """,
        cache,
        maps=[tensor_map((32, 8), (16, 4), 0, "fp32")] * 2,
    )
    got = kernel(x=np.arange(256, dtype=np.float32), y=np.full(4, -1, np.int32))["y"]
    np.testing.assert_array_equal(got, [128, 0, 0, 5])
