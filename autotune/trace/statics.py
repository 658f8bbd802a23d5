"""Static `__shared__` variables of a traced binary: where each lies in an OS thread's copy of them."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autotune.trace.binutils import ask_binutils

_SYMBOL = re.compile(r"^\s*\d+: ([0-9a-f]+)\s+(\d+) TLS\s+\S+\s+\S+\s+\d+ (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class SharedVariable:
    """A variable by its name in the source. A `guard` is the compiler's own note that it has been constructed."""

    name: str
    offset: int
    nbytes: int
    guard: bool


@lru_cache(maxsize=64)
def shared_variables(binary: Path) -> tuple[SharedVariable, ...]:
    """All of them, by offset.

    Raises:
        BuildError: `readelf`, which comes with the compiler, is missing or failed.
    """
    symbols = ask_binutils("read symbols", ["readelf", "-sW", str(binary)])
    found = [
        SharedVariable(_name(symbol), int(offset, 16), int(nbytes), symbol.startswith("_ZGV"))
        for offset, nbytes, symbol in _SYMBOL.findall(symbols)
        if "8emulator" not in symbol
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda variable: variable.offset))


def _name(symbol: str) -> str:
    """`tile` for `_ZZ10no_barrierE4tile`."""
    pieces = re.findall(r"E(\d+)([A-Za-z_]\w*?)(?:_\d+)?$", symbol)
    if pieces:
        length, rest = pieces[-1]
        return str(rest[: int(length)])
    return symbol
