"""The emulator's tensor maps, in the place of the driver's: `TensorMapContent` of include/emulator/tensor_map.hpp."""

import struct

from autotune.core.dtypes import DTYPES
from autotune.core.plan import TensorMapArg

_MARK = int.from_bytes(b"TNSORMAP", "little")
_LAYOUT = struct.Struct("<QQ4Q5I5H4B46x")


def encode_tensor_map(arg: TensorMapArg, address: int) -> bytes:
    """128 bytes that describe the tensor whose first element is at `address`."""
    rank = len(arg.extents)
    strides = (*arg.stride_bytes, *[0] * (5 - rank))
    extents, box = ((*sizes, *[1] * (5 - rank)) for sizes in (arg.extents, arg.box))
    kind = DTYPES[arg.dtype].tensor_map
    return _LAYOUT.pack(_MARK, address, *strides, *extents, *box, rank, kind, arg.swizzle or 16, 0)
