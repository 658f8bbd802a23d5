"""The emulator's tensor maps, in the place of the driver's: `TensorMapContent` of include/emulator/tensor_map.hpp."""

import struct

from autotune.core.plan import TensorMapArg

_MARK = int.from_bytes(b"TNSORMAP", "little")
_LAYOUT = struct.Struct("<QQ4Q5I5H4B46x")
_TYPES = {"fp16": 6, "fp32": 7, "bf16": 9, "int32": 3}  # the driver's numbers


def encode_tensor_map(arg: TensorMapArg, address: int) -> bytes:
    """128 bytes that describe the tensor whose first element is at `address`."""
    rank = len(arg.extents)
    strides = (*arg.stride_bytes, *[0] * (5 - rank))
    extents, box = ((*sizes, *[1] * (5 - rank)) for sizes in (arg.extents, arg.box))
    return _LAYOUT.pack(_MARK, address, *strides, *extents, *box, rank, _TYPES[arg.dtype], arg.swizzle or 16, 0)
