"""Copies that go on by themselves."""

import numpy as np

from autotune.compilers.cache import BuildCache
from tests.emulator.small_kernel import SmallKernel


def test_copies_arrive_when_they_are_waited_for_and_not_before(cache: BuildCache) -> None:
    kernel = SmallKernel(
        """
        #include "common/ptx/async_copy.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(const float* from, float* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            float* const tile = reinterpret_cast<float*>(smem);
            const int at = 4 * threadIdx.x;
            copy_async(shared_address(tile + at), from + at, true);
            commit_copies();
            copy_async(shared_address(tile + 128 + at), from + 128 + at, true);
            copy_async(shared_address(tile + 256 + at), nullptr, false);
            commit_copies();
            commit_copies();
            for (int i = 0; i < 12; ++i) seen[i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
            wait_for_copies<2>();
            for (int i = 0; i < 12; ++i) seen[384 + i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
            wait_for_copies<0>();
            for (int i = 0; i < 12; ++i) seen[768 + i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
        }
        """,
        cache,
        smem=3 * 512,
    )
    source = np.arange(256, dtype=np.float32)
    seen = kernel(**{"from": source}, seen=np.zeros((3, 3, 128), np.float32))["seen"]
    np.testing.assert_array_equal(seen[1, 0], source[:128])
    if SmallKernel.emulated:  # on a GPU copies may be early
        assert np.isnan(seen[0]).all()
        assert np.isnan(seen[1, 1:]).all()
    np.testing.assert_array_equal(seen[2, :2].reshape(-1), source)
    assert (seen[2, 2] == 0).all()


def test_copies_narrower_than_sixteen_bytes(cache: BuildCache) -> None:
    """8 and 4 bytes, parts of a word, whose rest becomes 0, and words written from registers."""
    kernel = SmallKernel(
        """
        #include "common/ptx/async_copy.cuh"
        #include "common/types.cuh"
        extern "C" __global__ void test(const int* from, int* seen)
        {
            extern __shared__ __align__(128) unsigned char smem[];
            int* const tile = reinterpret_cast<int*>(smem);
            const int at = 4 * threadIdx.x;
            copy_async<8>(shared_address(tile + at), from + at, true);
            copy_async<4>(shared_address(tile + at + 2), from + at + 2, true);
            copy_async<4>(shared_address(tile + at + 3), nullptr, false);
            for (int bytes = 0; bytes < 3; ++bytes)
                copy_async_part(shared_address(tile + 128 + at + bytes), from + at + bytes, 2 * bytes);
            store_later(shared_address(tile + 128 + at + 3), from[at + 3]);
            commit_copies();
            wait_for_copies<0>();
            for (int i = 0; i < 8; ++i) seen[i / 4 * 128 + at + i % 4] = tile[i / 4 * 128 + at + i % 4];
        }
        """,
        cache,
        smem=2 * 512,
    )
    source = np.arange(128, dtype=np.int32) * 65537 + 131072  # both halves of a word are told apart
    seen = kernel(**{"from": source}, seen=np.zeros((2, 32, 4), np.int32))["seen"]
    words = source.reshape(32, 4)
    np.testing.assert_array_equal(seen[0], np.column_stack([words[:, :3], np.zeros(32, np.int32)]))
    np.testing.assert_array_equal(seen[1], np.column_stack([0 * words[:, 0], words[:, 1] & 0xFFFF, words[:, 2:]]))
