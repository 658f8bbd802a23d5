"""Deterministic inputs."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from autotune.core.dtypes import numpy_dtype
from autotune.core.plan import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


def normal(tensor: TensorSpec, seed: int) -> "NDArray[Any]":
    """Standard normal values in the tensor's dtype and logical shape; equal seeds give equal values."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.standard_normal(tensor.shape, dtype=np.float32).astype(numpy_dtype(tensor.dtype))


_MANY = 2**18  # elements: fewer are made before a thread has started


def normal_ones(tensors: Sequence[TensorSpec], seed: int) -> "dict[str, NDArray[Any]]":
    """`normal` of each by its name, with seeds that follow one another; large ones are made at the same time."""
    seeds = range(seed, seed + len(tensors))
    if sum(math.prod(tensor.shape) for tensor in tensors) < _MANY:
        arrays = list(map(normal, tensors, seeds))
    else:
        with ThreadPoolExecutor(len(tensors)) as pool:
            arrays = list(pool.map(normal, tensors, seeds))
    return {tensor.name: array for tensor, array in zip(tensors, arrays, strict=True)}


def whole(tensor: TensorSpec, seed: int) -> "NDArray[Any]":
    """Whole numbers from -100, or 0 where the dtype has no sign, to 100; equal seeds give equal values."""
    import numpy as np

    dtype = numpy_dtype(tensor.dtype)
    generator = np.random.Generator(np.random.PCG64(seed))
    return generator.integers(max(np.iinfo(dtype).min, -100), 100, tensor.shape, endpoint=True).astype(dtype)
