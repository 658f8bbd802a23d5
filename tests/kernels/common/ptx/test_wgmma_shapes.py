"""The asm of wgmma's shapes, which the emulator does not execute: every register in its place.

What the instructions compute, `test_wgmma.py` asks on a GPU.
"""

import re

from autotune.core.resources import resource_root

TEXT = (resource_root("templates") / "common/ptx/wgmma_shapes.cuh").read_text(encoding="utf-8")
WIDTHS = range(8, 257, 8)


def test_lists_of_registers() -> None:
    """A width's list is the next smaller one's and four more; register 0 is named by the instruction itself."""
    lists = {int(n): rest for n, rest in re.findall(r"#define WGMMA_(\d+)\(X\) (.*)", TEXT)}
    assert sorted(lists) == list(WIDTHS)
    for n, rest in lists.items():
        assert n == 8 or rest.startswith(f"WGMMA_{n - 8}(X) ")
        numbers = [int(number) for number in re.findall(r"X\((\d+)\)", rest)]
        assert numbers == list(range(max(1, n // 2 - 4), n // 2))


def test_numbers_of_the_other_operands() -> None:
    """They stand behind the N / 2 registers of D, in order: as many as the largest form has."""
    shapes = [
        [int(x) for x in row.split(", ")] for row in re.findall(r"^WGMMA_SHAPE\(([\d, ]+)\)$", TEXT, re.MULTILINE)
    ]
    assert [shape[0] for shape in shapes] == list(WIDTHS)
    for n, *operands in shapes:
        assert operands == list(range(n // 2, n // 2 + 7))
