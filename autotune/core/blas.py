"""NumPy's BLAS on one thread, where only small systems are solved, or several threads compute anyway: its idle threads
spin and take cores from others."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

ONE_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of a process whose BLAS shall use one thread. Libraries read it once, when they are loaded."""


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """NumPy, when first imported within the block, uses one thread, unless the environment says otherwise."""
    added = ONE_THREAD.keys() - os.environ.keys()
    os.environ.update({name: ONE_THREAD[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


class _Limited:
    """How many are within the block, and what ends it: who comes first limits, who leaves last gives back."""

    lock = threading.Lock()
    within = 0
    end: Callable[[], None]


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Within the block the BLAS of this process, loaded long ago, uses one thread in all threads.

    Several threads may be within it at a time.
    """
    from threadpoolctl import threadpool_limits  # not where nothing is computed

    with _Limited.lock:
        if _Limited.within == 0:
            _Limited.end = threadpool_limits(1, user_api="blas").restore_original_limits
        _Limited.within += 1
    try:
        yield
    finally:
        with _Limited.lock:
            _Limited.within -= 1
            if _Limited.within == 0:
                _Limited.end()
