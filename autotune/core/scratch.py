"""Memory that a thread uses again and again: the first touch of fresh pages takes as long as a pass over them."""

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

_memory = threading.local()


def scratch(use: str, shape: tuple[int, ...], dtype: "np.dtype[Any] | type[np.generic]" = np.float64) -> NDArray[Any]:
    """An array of any values: the calling thread's for this `use`, until it asks for that use again."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    held: NDArray[np.uint8] | None = getattr(_memory, use, None)
    if held is None or held.size < nbytes:
        held = np.empty(nbytes, np.uint8)
        setattr(_memory, use, held)
    array: NDArray[Any] = held[:nbytes].view(dtype).reshape(shape)
    return array
