"""Where a matrix of a tensor begins, and which tensors allow vectors."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

# strides of the four axes, and elements before the first one
LAYOUTS = np.array(
    [
        (96, 32, 8, 1, 0),
        (96, 32, 8, 1, 4),  # aligned to 4 elements, not to 8
        (96, 32, 8, 1, 2),
        (96, 32, 8, 2, 0),
        (96, 32, 12, 1, 0),
        (96, 36, 8, 1, 0),
        (92, 32, 8, 1, 0),
        (0, 0, 0, 1, 0),
    ],
    np.int32,
)


def test_views(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include <cuda_fp16.h>
        #include "common/view.cuh"
        extern "C" __global__ void test(const __half* x, const int* layouts, int* by_4, int* by_8, int* place)
        {
            if (threadIdx.x >= COUNT) return;
            const int* const of = layouts + 5 * threadIdx.x;
            const View<const __half, 4> view = {x + of[4], {of[0], of[1], of[2], of[3]}};
            by_4[threadIdx.x] = allows_vectors<4>(view);
            by_8[threadIdx.x] = allows_vectors<8>(view);
            place[threadIdx.x] = static_cast<int>(matrix_of(view, 2, 1) - x);
        }
        """.replace("COUNT", str(len(LAYOUTS))),
        cache,
    )
    empty = np.zeros(len(LAYOUTS), np.int32)
    got = kernel(x=np.zeros(1024, np.float16), layouts=LAYOUTS, by_4=empty, by_8=empty, place=empty)
    np.testing.assert_array_equal(got["place"], LAYOUTS @ [2, 1, 0, 0, 1])
    for name, width in (("by_4", 4), ("by_8", 8)):
        expected = (LAYOUTS[:, 3] == 1) & (LAYOUTS[:, [0, 1, 2, 4]] % width == 0).all(axis=1)
        np.testing.assert_array_equal(got[name], expected)
        assert 0 < expected.sum() < len(LAYOUTS)
