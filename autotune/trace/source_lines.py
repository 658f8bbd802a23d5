"""From addresses of code to lines of the rendered source, by the compiler's own debugging information."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from autotune.families.source import SOURCE_NAME
from autotune.trace.binutils import ask_binutils
from autotune.trace.observed import Place

Frame = tuple[str, int]
"""A file as the source names it (`kernel.cu`, `common/tile.cuh`) and a line."""


class Lines:
    """Places of a traced binary; each address is looked up once."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self._frames: dict[int, tuple[Frame, ...]] = {}

    def resolve(self, addresses: Iterable[int]) -> None:
        """Look up many addresses at once.

        Raises:
            BuildError: `addr2line`, which comes with the compiler, is missing or failed.
        """
        missing = sorted(set(addresses) - self._frames.keys())
        if not missing:
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="autotune-addresses-") as listed:
            listed.write("".join(f"{address:#x}\n" for address in missing))
            listed.flush()
            command = ["addr2line", "-a", "-i", "-e", str(self._binary), f"@{listed.name}"]
            found = ask_binutils("look up source lines", command)
        for block in found.split("\n0x"):
            head, *rest = block.removeprefix("0x").splitlines() or [""]
            if head:
                self._frames[int(head, 16)] = tuple(_frame(line) for line in rest)

    def frames(self, address: int) -> tuple[Frame, ...]:
        """The line of the code at this address, then the lines that it is inlined into."""
        self.resolve([address])
        return self._frames.get(address, ())

    def place(self, address: int) -> Place:
        """The innermost line of the rendered source; `inner` says where in its headers."""
        frames = [frame for frame in self.frames(address) if not frame[0].startswith("emulator/")]
        for depth, (file, line) in enumerate(frames):
            if file == SOURCE_NAME:
                return Place(line, f"{frames[0][0]}:{frames[0][1]}" if depth else "")
        return Place(0, f"{frames[0][0]}:{frames[0][1]}" if frames else "")


def call_site(return_address: int) -> int:
    """An address within the call that returns to `return_address`."""
    return max(return_address - 1, 0)


def _frame(text: str) -> Frame:
    """`/…/entry/common/tile.cuh:33 (discriminator 2)`."""
    path, _, number = text.split(" (", maxsplit=1)[0].rpartition(":")
    for marker, prefix in (("/entry/", ""), ("/autotune/emulator/", "emulator/")):
        if marker in path:
            path = prefix + path.rsplit(marker, 1)[1].removeprefix("translated/")
    return path, int(number) if number.isdigit() else 0
