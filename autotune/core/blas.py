"""NumPy's BLAS on one thread, where only small systems are solved: its idle threads spin and take cores from others."""

import os
from collections.abc import Iterator, Mapping
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
