"""DLPack capsules read through ctypes: where an array of any library lies. Its structures are those of dlpack.h."""

import ctypes
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


def exported(array: Any, stream: int | None) -> Exported:
    """Ask an array for its capsule, and read it.

    `stream`: the one its memory will be used on, which the array's library makes wait where it has to; None on the CPU.

    Raises:
        UsageError: its library refuses, or its elements are of a type that no kernel takes.
    """
    legacy = {} if stream is None else {"stream": stream or 1}  # DLPack's number of the legacy default stream is 1
    try:
        capsule = array.__dlpack__(**legacy)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"a {type(array).__name__} gives no DLPack capsule: {error}") from error
    # The capsule's own destructor gives the tensor back when it is dropped: it is only looked at.
    tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    known = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if known is None:
        raise UsageError(
            f"elements of DLPack type {tensor.code} with {tensor.bits} bits are not supported; "
            f"kernels take {', '.join(DTYPES)}"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else contiguous(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    return Exported(address, shape, strides, known, tensor.device_type, tensor.device_id)
