"""Element types: one table, and what each is called elsewhere. NumPy is imported when asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        size: bytes of an element.
        ctype: its type in CUDA C++.
        library: its name in NumPy (bf16: in ml_dtypes) and in PyTorch.
        typestr: its name in the CUDA array interface, which has none for bf16.
        tensor_map: its number in tensor maps, `CUtensorMapDataType`.
        epsilon: distance from 1 to the next larger number; None for whole numbers.
        is_operand: whether the main tensors of an op may have it; the others are for results and workspaces.
    """

    name: str
    size: int
    ctype: str
    library: str
    typestr: str | None
    tensor_map: int
    epsilon: float | None
    is_operand: bool


DTYPES: Mapping[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("fp16", 2, "__half", "float16", "<f2", 6, 2.0**-10, True),
        DType("bf16", 2, "__nv_bfloat16", "bfloat16", None, 9, 2.0**-7, True),
        DType("fp32", 4, "float", "float32", "<f4", 7, 2.0**-23, True),
        DType("fp64", 8, "double", "float64", "<f8", 8, 2.0**-52, False),
        DType("int32", 4, "int", "int32", "<i4", 3, None, False),
    )
}

OPERAND_DTYPES = tuple(dtype.name for dtype in DTYPES.values() if dtype.is_operand)

NAN_BYTE = 0xFF
"""As every byte of an element: NaN in every floating dtype."""


@cache
def numpy_dtype(name: str) -> "np.dtype[Any]":
    """The NumPy element type."""
    import ml_dtypes
    import numpy as np

    library = DTYPES[name].library
    found: np.dtype[Any] = np.dtype(getattr(np if hasattr(np, library) else ml_dtypes, library))
    return found


def torch_dtype(torch: Any, name: str) -> Any:
    """The element type of PyTorch, the module given."""
    return getattr(torch, DTYPES[name].library)


def rounded(array: "NDArray[Any]", name: str) -> "NDArray[Any]":
    """The same values after rounding to a dtype, in the array's own type."""
    return array.astype(numpy_dtype(name)).astype(array.dtype)


def epsilon(name: str) -> float:
    """Distance from 1 to the next larger number.

    Raises:
        ValueError: no floating dtype.
    """
    dtype = DTYPES.get(name)
    if dtype is None or dtype.epsilon is None:
        raise ValueError(f"{name!r} is no floating dtype")
    return dtype.epsilon
