"""DLPack capsules read through ctypes: where an array of any library lies. Its structures are those of dlpack.h."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.dtypes import DTYPES
from autotune.core.errors import UsageError
from autotune.ops.op import contiguous

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Kinds of memory, `DLDeviceType`."""

_INT, _UINT, _FLOAT, _BFLOAT = 0, 1, 2, 4  # DLDataTypeCode
_CODES = {"int": _INT, "uint": _UINT, "float": _FLOAT, "bfloat": _BFLOAT}
_DTYPES = {
    (_CODES[dtype.array_name.rstrip("0123456789")], 8 * dtype.size): name
    for name, dtype in DTYPES.items() if dtype.array_name.rstrip("0123456789") in _CODES
}  # fmt: skip


class _Tensor(ctypes.Structure):
    """`DLTensor`, the first member of what an unversioned capsule points to."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`, which a capsule of DLPack 1.0 and later points to."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

_has_name = ctypes.pythonapi.PyCapsule_IsValid
_has_name.restype, _has_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True)
class Exported:
    """What a capsule says. Strides are in elements; the memory is valid as long as the array is."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device_type: int
    device_id: int
    read_only: bool = False


def exported(array: Any, stream: int | None) -> Exported:
    """Ask an array for its capsule, and read it.

    `stream`: the one its memory will be used on, which the array's library makes wait where it has to; None on the CPU.

    Raises:
        UsageError: its library refuses, or its elements are of a type that no kernel takes.
    """
    legacy = {} if stream is None else {"stream": stream or 1}  # DLPack's number of the legacy default stream is 1
    try:
        capsule = _capsule(array, legacy)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"a {type(array).__name__} gives no DLPack capsule: {error}") from error
    # The capsule's own destructor gives the tensor back when it is dropped: it is only looked at.
    if _has_name(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor, read_only = _Tensor.from_address(_pointer_of(capsule, b"dltensor")), False
    known = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if known is None:
        raise UsageError(
            f"elements of DLPack type {tensor.code} with {tensor.bits} bits are not supported; "
            f"kernels take {', '.join(DTYPES)}"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else contiguous(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Exported(address, shape, strides, known, tensor.device_type, tensor.device_id, read_only)


def _capsule(array: Any, stream: Mapping[str, int]) -> Any:
    """Of version 1, which says whether an array is read-only, where its library has that."""
    try:
        return array.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # older than the argument
        return array.__dlpack__(**stream)
