"""Which summands and elements a triangle leaves, and which lines allow vectors."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel

M, N, K = 6, 9, 10


def test_triangles_end_in_the_bottom_right_corner(cache: BuildCache) -> None:
    """Rows two by two, summands in steps of 4 where they begin late."""
    kernel = SmallKernel(
        """
        #include "common/matmul/triangle.cuh"
        template <Triangle TRIANGLE>
        __device__ void report(int*& summands, int*& elements)
        {
            for (int row = 0; row < 6; row += 2) {
                const Summands range = Summands::of_rows<TRIANGLE>(row, row + 2, 6, 10, 4);
                *summands++ = range.begin;
                *summands++ = range.end;
            }
            for (int i = 0; i < 54; ++i) *elements++ = wanted<TRIANGLE>(i / 9, i % 9, 6, 9);
        }
        extern "C" __global__ void test(int* summands, int* elements)
        {
            if (threadIdx.x != 0) return;
            report<Triangle::NONE>(summands, elements);
            report<Triangle::C_LOWER>(summands, elements);
            report<Triangle::A_LOWER>(summands, elements);
            report<Triangle::A_UPPER>(summands, elements);
        }
        """,
        cache,
    )
    got = kernel(summands=np.zeros((4, 3, 2), np.int32), elements=np.zeros((4, M, N), np.int32))
    row = np.arange(0, M, 2)
    everything = np.stack([0 * row, 0 * row + K], axis=1)
    lower = np.stack([0 * row, np.minimum(K, row + 2 + K - M)], axis=1)
    upper = np.stack([(row + K - M) // 4 * 4, 0 * row + K], axis=1)
    np.testing.assert_array_equal(got["summands"], [everything, everything, lower, upper])
    below = np.arange(N) <= np.arange(M)[:, None] + N - M
    np.testing.assert_array_equal(got["elements"], [below | True, below, below | True, below | True])
    for first, (begin, end) in zip(row, got["summands"][2], strict=True):  # nothing that counts is left out
        a = np.arange(K) <= np.arange(first, first + 2)[:, None] + K - M
        assert not a[:, end:].any()
        assert a[:, begin:end].any(axis=0).all()


def test_lines_along_an_axis(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/matmul/triangle.cuh"
        extern "C" __global__ void test(const float* x, int* along)
        {
            const View<const float, 4> rows = {x, {64, 32, 8, 1}}, odd = {x + 2, {64, 32, 8, 1}};
            const View<const float, 4> columns = {x, {64, 32, 1, 8}};
            along[0] = allows_vectors_along<3, 4>(rows);
            along[1] = allows_vectors_along<2, 4>(rows);
            along[2] = allows_vectors_along<2, 4>(columns);
            along[3] = allows_vectors_along<3, 4>(odd);
            along[4] = allows_vectors_along<3, 2>(odd);
        }
        """,
        cache,
    )
    got = kernel(x=np.zeros(64, np.float32), along=np.zeros(5, np.int32))["along"]
    np.testing.assert_array_equal(got, [1, 0, 1, 0, 1])
