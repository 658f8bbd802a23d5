"""Memory that a thread uses again."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from autotune.core.scratch import scratch


def test_a_use_has_the_same_memory_each_time_and_grows() -> None:
    first = scratch("test", (4, 6), np.float32)
    assert first.shape == (4, 6)
    assert first.dtype == np.float32
    again = scratch("test", (3, 4))
    assert again.dtype == np.float64
    assert np.shares_memory(first, again)
    assert scratch("test", (100,), np.float32).shape == (100,)
    assert scratch("test", (0, 5), np.float32).size == 0


def test_uses_and_threads_have_memory_of_their_own() -> None:
    mine = scratch("test", (4, 6), np.float32)
    assert not np.shares_memory(mine, scratch("another", (4, 6), np.float32))
    with ThreadPoolExecutor(1) as pool:
        assert not np.shares_memory(mine, pool.submit(scratch, "test", (4, 6), np.float32).result())
