"""Counting arithmetic: executed basic blocks of a traced binary times the instructions in each.

The emulator computes with the processor's own scalar instructions, one for each operation of a lane (the traced build
does not vectorise), so the disassembly tells what a block of code computes. Sums, differences, products, quotients and
roots count; minima, maxima, comparisons and conversions do not, as in Nsight Compute's counters of FADD, FMUL and FFMA.
Code of the fp16 and bf16 headers counts as fp16: there an operation on halves is one in wider arithmetic.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autotune.emulator.support import EMULATOR
from autotune.trace.binutils import ask_binutils
from autotune.trace.observed import Arithmetic, LineArithmetic
from autotune.trace.source_lines import Lines

_BLOCK = "__sanitizer_cov_trace_pc"
_LINE = re.compile(r"^\s+([0-9a-f]+):\s+(\S+)\s*(.*)$")
_X86 = re.compile(r"^v?(fn?m(?:add|sub)\d{3}|add|sub|mul|div|sqrt)([sp])([sd])$")
_ARM = re.compile(r"^(fn?m(?:add|sub)|fadd|fsub|fn?mul|fdiv|fsqrt)$")
_SPECIAL = re.compile(
    r"<(?:__)?(?:exp(?:f|2f?|10f?|m1f?)?|log(?:f|2f?|10f?|1pf?)?|sin(?:cos)?f?|cosf?|tanh?f?|powf?|erff?|cbrtf?)(?:_finite|@|>)"
)
_HALF_FILES = ("cuda_fp16", "cuda_bf16", "emulator/include/emulator/half.hpp")


@dataclass(frozen=True)
class Instruction:
    """An arithmetic instruction: where, how many operations, in which width (32, 64; 0: a special function)."""

    address: int
    operations: int
    width: int


@lru_cache(maxsize=32)
def code_blocks(binary: Path) -> dict[int, tuple[Instruction, ...]]:
    """The arithmetic of each basic block, by the return address of the call at its beginning.

    Raises:
        BuildError: `objdump`, which comes with the compiler, is missing or failed.
    """
    code = ask_binutils("disassemble", ["objdump", "-d", "--no-show-raw-insn", str(binary)])
    return {start: tuple(found) for start, found in _blocks(code.splitlines()) if found}


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[Instruction]]]:
    start: int | None = None
    begins = False
    found: list[Instruction] = []
    for text in lines:
        match = _LINE.match(text)
        if match is None:
            if start is not None and text.endswith(">:"):  # another function, which may not be instrumented
                yield start, found
                start, found = None, []
            continue
        address = int(match[1], 16)
        if begins:
            start, found, begins = address, [], False
        if _BLOCK in match[3]:
            if start is not None:
                yield start, found
            start, begins = None, True
        elif start is not None:
            instruction = _arithmetic(address, match[2], match[3])
            if instruction is not None:
                found.append(instruction)
    if start is not None:
        yield start, found


def _arithmetic(address: int, name: str, operands: str) -> Instruction | None:
    if name.startswith(("call", "jmp", "bl")):
        return Instruction(address, 1, 0) if _SPECIAL.search(operands) else None
    x86 = _X86.match(name)
    if x86 is not None:
        width = 32 if x86[3] == "s" else 64
        lanes = 1 if x86[2] == "s" else (256 if "ymm" in operands else 128) // width
        return Instruction(address, lanes * (2 if x86[1].startswith("f") else 1), width)
    if _ARM.match(name):
        width = 64 if operands.startswith("d") else 32
        return Instruction(address, 2 if "mad" in name or "msub" in name else 1, width)
    return None


def count_arithmetic(binary: Path, lines: Lines, entered: Counter[int]) -> tuple[LineArithmetic, ...]:
    """Operations of all lanes, by line of the rendered source; 0 is a line that is not known.

    `entered`: how often the block that begins at each address was entered.
    """
    blocks = code_blocks(binary)
    executed = [(i, times) for start, times in entered.items() for i in blocks.get(start, ())]
    lines.resolve(i.address for i, _ in executed)
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for instruction, times in executed:
        kind, operations = _classify(instruction, lines)
        if operations:
            sums[lines.place(instruction.address).line][kind] += operations * times
    return tuple(LineArithmetic(line, Arithmetic(**kinds)) for line, kinds in sorted(sums.items()))


def _classify(instruction: Instruction, lines: Lines) -> tuple[str, int]:
    """The field of `Arithmetic` that an instruction belongs to, and the operations it stands for."""
    if instruction.width == 0:
        return "special", instruction.operations
    frames = lines.frames(instruction.address)
    inner, line = frames[0] if frames else ("", 0)
    if not any(name in inner for name in _HALF_FILES):
        return ("fp32" if instruction.width == 32 else "fp64"), instruction.operations
    if instruction.width == 32:
        return "fp16", instruction.operations
    # A fused multiply-add of halves is emulated in double precision: one line of it adds, the others round.
    return "fp16", 2 if line == _line_of_fused_sum() else 0


@lru_cache(maxsize=1)
def _line_of_fused_sum() -> int:
    lines = (EMULATOR / "include" / "emulator" / "half.hpp").read_text(encoding="utf-8").splitlines()
    return next(number for number, text in enumerate(lines, 1) if "double sum = p + c;" in text)
