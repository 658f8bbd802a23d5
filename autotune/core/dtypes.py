"""Element types in NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_NUMPY: dict[str, np.dtype[Any]] = {
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
}


_EPSILON = {"fp16": 2.0**-10, "bf16": 2.0**-7, "fp32": 2.0**-23, "fp64": 2.0**-52}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy element type of `fp16`, `bf16`, `fp32`, `fp64` or `int32`."""
    return _NUMPY[dtype]


def rounded(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The same values after rounding to `dtype`, in the array's own type."""
    return array.astype(numpy_dtype(dtype)).astype(array.dtype)


def epsilon(dtype: str) -> float:
    """Distance from 1 to the next larger number."""
    if dtype not in _EPSILON:
        raise ValueError(f"{dtype!r} is no floating dtype")
    return _EPSILON[dtype]
