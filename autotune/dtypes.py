"""Element types in NumPy."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_NUMPY: dict[str, Any] = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp32": np.float32,
    "fp64": np.float64,
    "int32": np.int32,
}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy element type of `fp16`, `bf16`, `fp32`, `fp64` or `int32`."""
    return np.dtype(_NUMPY[dtype])


def rounded(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The same values after rounding to `dtype`, in the array's own type."""
    return array.astype(numpy_dtype(dtype)).astype(array.dtype)


def epsilon(dtype: str) -> float:
    """Distance from 1 to the next larger number."""
    return float(ml_dtypes.finfo(numpy_dtype(dtype)).eps)
