"""NumPy's BLAS on one thread, where only small systems are solved: its idle threads spin and take cores from others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """NumPy when first imported within the block, and processes started there, use one thread, unless told otherwise.

    Libraries read these variables once, when they are loaded.
    """
    added = [name for name in _VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
