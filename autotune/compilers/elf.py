"""Cubins as files: sections, symbols and relocations of a 64-bit ELF file.

The form is that of the System V ABI, chapters 4 and 5 (Sections, Symbol Table, Relocation).
"""

import struct
from dataclasses import dataclass
from functools import cached_property

ALLOCATED = 0x2
"""Flag of a section that is loaded onto the device."""

_NO_BITS = 8  # a section's type: it has a size, but no bytes in the file
_SYMBOLS, _RELOCATIONS = 2, 4


@dataclass(frozen=True)
class Section:
    """A section; `data` is empty where it only has a size."""

    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """A symbol: `value` is its offset in the section with this number (0: it is defined elsewhere)."""

    name: str
    section: int
    value: int


@dataclass(frozen=True)
class Relocation:
    """A place in a section that gets the address of a symbol."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Elf:
    """A 64-bit little-endian ELF file. Properties raise `ValueError` or `struct.error` where it is damaged."""

    data: bytes

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections by number."""
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit ELF file")
        (start,) = struct.unpack_from("<Q", self.data, 0x28)
        size, number, names = struct.unpack_from("<HHH", self.data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQII", self.data, start + i * size) for i in range(number)]
        if names >= number:
            raise ValueError("it has no names of sections")
        return tuple(self._section(header, headers[names][4]) for header in headers)

    def _section(self, header: tuple[int, ...], names: int) -> Section:
        name, kind, flags, _, begin, size, link, info = header
        data = b"" if kind == _NO_BITS else self.data[begin : begin + size]
        if kind != _NO_BITS and len(data) != size:
            raise ValueError("a section reaches beyond the end of the file")
        return Section(_text(self.data, names + name), kind, flags, data, size, link, info)

    @cached_property
    def named(self) -> dict[str, Section]:
        """Sections by name."""
        return {section.name: section for section in self.sections}

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols by number."""
        table = self._symbol_table
        names = self.sections[table.link].data
        return tuple(
            Symbol(_text(names, name), section, value)
            for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", table.data)
        )

    @cached_property
    def _symbol_table(self) -> Section:
        """The first: since Blackwell there is another, of an intermediate form."""
        table = next((section for section in self.sections if section.kind == _SYMBOLS), None)
        if table is None:
            raise ValueError("it has no symbols")
        return table

    def relocations(self, section: Section) -> tuple[Relocation, ...]:
        """Those of a section, by place."""
        found = [
            Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
            for other in self.sections
            if other.kind == _RELOCATIONS and self.sections[other.link] is self._symbol_table
            if self.sections[other.info] is section
            for offset, info, addend in struct.iter_unpack("<QQq", other.data)
        ]
        return tuple(sorted(found, key=lambda relocation: (relocation.offset, relocation.kind)))


def _text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode()
