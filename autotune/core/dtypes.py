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
        array_name: its name in NumPy (bf16: in ml_dtypes) and in PyTorch.
        typestr: its name in the CUDA array interface, which has none for bf16 and fp8.
        tensor_map: its number in tensor maps, `CUtensorMapDataType`.
        epsilon: distance from 1 to the next larger number; None for whole numbers.
        is_operand: whether the main tensors of a built-in op may have it; the others are for results, workspaces and
            ops of one's own.
    """

    name: str
    size: int
    ctype: str
    array_name: str
    typestr: str | None
    tensor_map: int
    epsilon: float | None
    is_operand: bool

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers, which are compared exactly."""
        return self.epsilon is None

    @property
    def saturates(self) -> bool:
        """Whether CUDA's conversions to it give the largest number in place of what it cannot hold."""
        return self.size == 1 and not self.is_whole


DTYPES: Mapping[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("fp16", 2, "__half", "float16", "<f2", 6, 2.0**-10, True),
        DType("bf16", 2, "__nv_bfloat16", "bfloat16", None, 9, 2.0**-7, True),
        DType("fp32", 4, "float", "float32", "<f4", 7, 2.0**-23, True),
        DType("fp64", 8, "double", "float64", "<f8", 8, 2.0**-52, False),
        DType("fp8e4m3", 1, "__nv_fp8_e4m3", "float8_e4m3fn", None, 0, 2.0**-3, False),
        DType("fp8e5m2", 1, "__nv_fp8_e5m2", "float8_e5m2", None, 0, 2.0**-2, False),
        DType("int8", 1, "signed char", "int8", "|i1", 0, None, False),
        DType("uint8", 1, "unsigned char", "uint8", "|u1", 0, None, False),
        DType("int16", 2, "short", "int16", "<i2", 1, None, False),
        DType("uint16", 2, "unsigned short", "uint16", "<u2", 1, None, False),
        DType("int32", 4, "int", "int32", "<i4", 3, None, False),
        DType("uint32", 4, "unsigned int", "uint32", "<u4", 2, None, False),
        DType("int64", 8, "long long", "int64", "<i8", 5, None, False),
    )
}

OPERAND_DTYPES = tuple(dtype.name for dtype in DTYPES.values() if dtype.is_operand)

NAN_BYTE = 0xFF
"""As every byte of an element: NaN in every floating dtype; -1, or the largest number, in the others."""


@cache
def numpy_dtype(name: str) -> "np.dtype[Any]":
    """The NumPy element type."""
    import ml_dtypes
    import numpy as np

    array_name = DTYPES[name].array_name
    found: np.dtype[Any] = np.dtype(getattr(np if hasattr(np, array_name) else ml_dtypes, array_name))
    return found


def torch_dtype(torch: Any, name: str) -> Any:
    """The element type of PyTorch, the module given."""
    return getattr(torch, DTYPES[name].array_name)


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
