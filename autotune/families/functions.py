"""The functions that expressions and templates may call, for numbers and for arrays."""

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from autotune.core.dtypes import DTYPES


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


def log2(n: int) -> int:
    """Exact base-2 logarithm of a power of two.

    Raises:
        ValueError: n is not a power of two.
    """
    if n < 1 or n & (n - 1):
        raise ValueError(f"log2({n}) is not whole; the argument must be a power of two")
    return n.bit_length() - 1


def next_pow2(n: int) -> int:
    """Least power of two that is at least n."""
    return 1 << max(0, int(n) - 1).bit_length()


def sizeof(dtype: str) -> int:
    """Bytes of one element of a dtype, such as `fp16`, `fp32` or `int8`.

    Raises:
        ValueError: another name.
    """
    if dtype not in DTYPES:
        raise ValueError(f"sizeof({dtype!r}): the dtype is one of {', '.join(DTYPES)}")
    return DTYPES[dtype].size


def axis(grid_map: str, name: str) -> str:
    """The axis of the grid, `x`, `y` or `z`, that a map such as `x=rows,y=head,z=batch` gives to `name`.

    Raises:
        ValueError: the map does not mention the name.
    """
    for part in grid_map.split(","):
        if part[1:] == f"={name}":
            return part[0]
    raise ValueError(f"axis({grid_map!r}, {name!r}): the map does not mention {name}")


def _grid_sizeof(dtype: Any) -> Any:
    return sizeof(dtype) if isinstance(dtype, str) else np.vectorize(sizeof, otypes=[np.int64])(dtype)


def _grid_axis(grid_map: Any, name: str) -> Any:
    return axis(grid_map, name) if isinstance(grid_map, str) else np.vectorize(axis, otypes=[str])(grid_map, name)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ceil_div": ceil_div,
    "min": min,
    "max": max,
    "abs": abs,
    "sqrt": math.sqrt,
    "log2": log2,
    "next_pow2": next_pow2,
    "sizeof": sizeof,
    "axis": axis,
}

GRID_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ceil_div": lambda a, b: -(-a // b),
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "abs": np.abs,
    "sqrt": np.sqrt,
    "log2": np.vectorize(log2, otypes=[np.int64]),
    "next_pow2": np.vectorize(next_pow2, otypes=[np.int64]),
    "sizeof": _grid_sizeof,
    "axis": _grid_axis,
}
