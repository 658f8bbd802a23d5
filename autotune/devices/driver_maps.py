"""Tensor maps by the CUDA driver, which PyCUDA has no call for: `cuTensorMapEncodeTiled` of libcuda, through ctypes."""

import ctypes
from functools import cache, lru_cache
from typing import Any

from autotune.core.dtypes import DTYPES
from autotune.core.errors import LaunchError
from autotune.core.plan import TMA_SWIZZLES, TensorMapArg

_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
_PROMOTE_TO_256_BYTES = 3  # CUtensorMapL2promotion
_BYTES, _ALIGNMENT = 128, 64


@lru_cache(maxsize=1024)  # calls of a kernel mostly come with the tensors of the call before
def encode_tensor_map(arg: TensorMapArg, address: int) -> bytes:
    """The driver's 128 bytes for the tensor whose first element is at `address`.

    Raises:
        LaunchError: the driver has no tensor maps (before CUDA 12), or refuses this one.
    """
    rank = len(arg.extents)
    memory = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    status = _encode()(
        ctypes.c_void_p(ctypes.addressof(memory) + start), DTYPES[arg.dtype].tensor_map, rank, ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*arg.extents), (ctypes.c_uint64 * max(1, rank - 1))(*arg.stride_bytes),
        (ctypes.c_uint32 * rank)(*arg.box), (ctypes.c_uint32 * rank)(*[1] * rank),
        0, TMA_SWIZZLES[arg.swizzle], _PROMOTE_TO_256_BYTES, 0,
    )  # fmt: skip
    if status != 0:
        raise LaunchError(f"{arg.name}: the driver refuses the tensor map (error {status}) of {arg}")
    return memory.raw[start : start + _BYTES]


@cache
def _encode() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise LaunchError(f"this CUDA driver makes no tensor maps: {error}") from error
