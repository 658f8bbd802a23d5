"""Rounding of large float32 arrays to the dtypes of operands, in place."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import numpy_dtype
from autotune.core.scratch import scratch

_EXPONENT = np.uint32(0x7F800000)
_LEAST_NORMAL = np.float32(2.0**-14)
_OVERFLOW = 65520.0  # from here on fp16 gives infinity
_SPACED = np.float32(1.5 * 2.0**13)
"""Times a number's power of two: where float32 has the steps that fp16 has at the number, for both signs."""


def round_to(array: NDArray[Any], name: str) -> None:
    """Give each element the nearest value of a dtype, of two the even one.

    NumPy converts to fp16 without the processor's instruction, and thirty times as slowly where the result is below
    fp16's normal numbers, as most probabilities are. Adding and subtracting a number of the right size rounds as well.
    """
    if name == "fp32" and array.dtype == np.float32:
        return
    if name == "fp16" and array.dtype == np.float32 and _within(array):
        powers = scratch("rounding", array.shape, np.float32)
        np.bitwise_and(array.view(np.uint32), _EXPONENT, out=powers.view(np.uint32))
        np.maximum(powers, _LEAST_NORMAL, out=powers)
        powers *= _SPACED
        array += powers
        array -= powers
    else:
        array[...] = array.astype(numpy_dtype(name))


def _within(array: NDArray[Any]) -> bool:
    """Whether fp16 holds all that are numbers."""
    if array.size == 0:
        return True
    least, largest = array.min(), array.max()
    if np.isnan(least):
        least, largest = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
    return bool(least > -_OVERFLOW and largest < _OVERFLOW)
