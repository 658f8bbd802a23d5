"""Deterministic inputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import numpy_dtype
from autotune.core.plan import TensorSpec


def normal(tensor: TensorSpec, seed: int) -> NDArray[Any]:
    """Standard normal values in the tensor's dtype and logical shape; equal seeds give equal values."""
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.standard_normal(tensor.shape, dtype=np.float32).astype(numpy_dtype(tensor.dtype))
