"""Where a kernel's parameters lie in the buffer that a launch hands over.

That is C's layout, except for parameters aligned to more than the constant bank's own start: `__grid_constant__` tensor
maps, aligned to 64 bytes, lie so that their address in the bank is aligned, and the bank's parameters begin at 0x210.
"""

import struct
from pathlib import Path

from autotune.compilers.elf import Elf
from autotune.core.errors import BuildError

_INFO = ".nv.info."
_PARAMETER = (0x17, 0x45)
"""EIATTR_KPARAM_INFO: index, ordinal, offset, flags with the size; beyond 4 KB its second form, with the size alone."""

_VALUES = 4  # an attribute with values behind it


def parameter_places(cubin: Path, kernel: str) -> tuple[int, ...]:
    """The offset of each parameter of a kernel, in their order, in bytes.

    Raises:
        BuildError: the cubin is damaged or has no such kernel.
    """
    try:
        elf = Elf(cubin.read_bytes())
        data = next(section.data for section in elf.sections if section.name == _INFO + kernel)
        places, at = dict[int, int](), 0
        while at < len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == _VALUES:
                if attribute in _PARAMETER:
                    _, ordinal, offset, _ = struct.unpack_from("<IHHI", data, at)
                    places[ordinal] = offset
                at += size
    except (OSError, ValueError, struct.error, StopIteration) as error:
        raise BuildError(
            f"cannot read the parameters of {kernel} in {cubin}: {str(error) or 'it is not there'}"
        ) from error
    return tuple(places[ordinal] for ordinal in sorted(places))
