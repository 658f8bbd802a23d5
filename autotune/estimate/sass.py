"""The machine code of a cubin, decoded as far as a schedule needs it.

Since Volta an instruction has 128 bits. Where the compiler's schedule lies in them (clocks until the next instruction,
scoreboards set and waited for) is published in Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking" (2018), section 2.1; opcodes and branch offsets were compared with nvdisasm 13 for sm_75, 80, 89, 90,
100 and 120. Opcodes that are not in the table take an issue slot and nothing else.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.compilers.elf import Elf
from autotune.core.errors import BuildError

Pipe = Literal["", "fma", "integer multiply", "half", "alu", "special", "tensor", "exchange", "load", "copy", "store"]
"""Where an instruction goes. `exchange`: shared memory, L1 and shuffles; `load`, `copy`, `store`: memory beyond."""

Kind = Literal[
    "", "branch", "call", "exit", "return", "barrier", "wait for copies", "commit copies", "fp32", "exponential",
    "tensor", "shared load", "shared store", "global load", "async copy", "global store", "shuffle", "local",
    "half product",
]  # fmt: skip
"""What an instruction does, as far as it matters for control flow or is counted on the emulator, too."""

ENDING: tuple[Kind, ...] = ("branch", "call", "exit", "return")
"""After these control may go on elsewhere."""

_OPCODES: dict[int, tuple[Pipe, Kind]] = {
    **dict.fromkeys((0x20, 0x21, 0x23), ("fma", "fp32")),  # FMUL FADD FFMA
    **dict.fromkeys((0x24, 0x25, 0x26, 0x27), ("integer multiply", "")),  # IMAD
    0x30: ("half", ""),  # HADD2
    **dict.fromkeys((0x31, 0x32, 0x35), ("half", "half product")),  # HFMA2 HMUL2 HFMA2.MMA
    **dict.fromkeys((0x02, 0x05, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x10, 0x11, 0x12, 0x13, 0x14), ("alu", "")),
    **dict.fromkeys((0x0F, 0x16, 0x17, 0x19, 0x1A, 0x1C, 0x36, 0x3E, 0x45, 0x46, 0x48, 0x76), ("alu", "")),
    0x3C: ("tensor", "tensor"),  # HMMA
    **dict.fromkeys((0x104, 0x105, 0x106), ("special", "")),  # F2F F2I I2F
    0x108: ("special", "exponential"),  # MUFU
    **dict.fromkeys((0x3B, 0x184), ("exchange", "shared load")),  # LDSM LDS
    **dict.fromkeys((0x44, 0x188, 0x18C, 0x18D), ("exchange", "shared store")),  # STSM STS ATOMS ATOMS.CAST
    0x189: ("exchange", "shuffle"),  # SHFL
    0x06: ("", "shuffle"),  # VOTE
    0x181: ("load", "global load"),  # LDG
    0x1AE: ("copy", "async copy"),  # LDGSTS
    **dict.fromkeys((0x186, 0x18E, 0x1A3, 0x1A6, 0x1A8, 0x1A9), ("store", "global store")),  # STG RED REDG ATOMG
    **dict.fromkeys((0x183, 0x187), ("exchange", "local")),  # LDL STL: spilled registers, which the L1 cache keeps
    0x1AF: ("", "commit copies"),  # LDGDEPBAR
    0x11A: ("", "wait for copies"),  # DEPBAR
    0x11D: ("", "barrier"),  # BAR
    0x147: ("", "branch"),  # BRA
    0x149: ("", "branch"),  # BRX: where to is not known
    0x144: ("", "call"),
    0x14D: ("", "exit"),
    0x150: ("", "return"),
}
_BRANCH, _CALL = 0x147, 0x144
_FUSED = 0x23  # FFMA
_MATRICES = (0x3B, 0x44)  # LDSM STSM
_PRODUCT = 0x3C  # HMMA
_ZERO = 255  # the register RZ
_MUFU_COUNTED = (0, 1, 2, 3, 9)  # cosine, sine, 2^x, logarithm, tanh; the others are part of divisions and roots
_NOBODY = 15  # the guard @!PT
_EVERYBODY = 7  # the guard @PT
_DIVERGED = (2, 3)  # branches to code for warps that are not together


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. Scoreboards are numbers from 0 to 5; None: none."""

    pipe: Pipe
    kind: Kind
    amount: float  # of `kind`: 2 for a fused multiply-add, a half for a product of half the depth, else 1
    words: int  # of 4 bytes that a lane of a load or store moves
    conditional: bool  # control may also go on behind it
    target: int | None  # of a branch or call: number of an instruction
    stall: int  # clocks until the warp's next instruction
    sets: int | None  # scoreboard that waits for the result
    frees: int | None  # scoreboard that waits until the operands are read
    waits: tuple[int, ...]  # scoreboards
    groups: int = 0  # of copies that may still be under way behind "wait for copies"


def read_code(cubin: Path, compute_capability: int) -> dict[str, tuple[Instruction, ...]]:
    """The instructions of each kernel in a cubin, by its name.

    Raises:
        BuildError: the file is no cubin, or its GPU is older than Volta.
    """
    if compute_capability < 70:
        raise BuildError(
            f"instructions of compute capability {compute_capability} are of another form; 70 is the least"
        )
    try:
        return {
            section.name.removeprefix(".text."): decode(section.data, compute_capability)
            for section in Elf(cubin.read_bytes()).sections
            if section.name.startswith(".text.")
        }
    except (OSError, struct.error, ValueError) as error:
        raise BuildError(f"cannot read the code of {cubin}: {error}") from error


def decode(section: bytes, compute_capability: int) -> tuple[Instruction, ...]:
    """A section of code."""
    words = [low | high << 64 for low, high in struct.iter_unpack("<QQ", section)]
    return tuple(_instruction(word, place, compute_capability) for place, word in enumerate(words))


def _instruction(word: int, place: int, compute_capability: int) -> Instruction:
    opcode, guard = word & 0x1FF, word >> 12 & 15
    pipe, kind = _OPCODES.get(opcode, ("", ""))
    if guard == _NOBODY and kind not in ENDING:
        pipe, kind = "", ""
    if opcode == 0x108 and word >> 74 & 15 not in _MUFU_COUNTED:
        kind = ""
    if kind == "half product" and word >> 24 & 0xFF == _ZERO:  # a way to move a constant
        kind = ""
    return Instruction(
        pipe, kind, _amount(opcode, word), _words(opcode, word), _conditional(opcode, guard, word),
        _target(opcode, word, place, compute_capability), word >> 105 & 15, _scoreboard(word >> 110),
        _scoreboard(word >> 113), tuple(number for number in range(6) if word >> 116 + number & 1), word >> 38 & 63,
    )  # fmt: skip


def _scoreboard(bits: int) -> int | None:
    return None if bits & 7 > 5 else bits & 7


def _amount(opcode: int, word: int) -> float:
    if opcode == _PRODUCT:  # m16n8k16, or m16n8k8 of tf32, which takes as long
        return 1.0 if word >> 75 & 1 or word >> 83 & 1 else 0.5
    return 2.0 if opcode == _FUSED else 1.0


def _words(opcode: int, word: int) -> int:
    """Loads and stores say their width; those of matrices how many of 8x8, a word of each lane each."""
    if opcode in _MATRICES:
        return (1, 2, 4, 4)[word >> 72 & 3]
    width = word >> 73 & 7
    return {5: 2, 6: 4}.get(width, 1)


def _conditional(opcode: int, guard: int, word: int) -> bool:
    if opcode != _BRANCH:
        return guard != _EVERYBODY
    uniform = word >> 32 & 3 == 1 and bool(word >> 91 & 1)
    return guard != _EVERYBODY or word >> 87 & 15 != _EVERYBODY or uniform or word >> 32 & 3 in _DIVERGED


def _target(opcode: int, word: int, place: int, compute_capability: int) -> int | None:
    if opcode not in (_BRANCH, _CALL) or (opcode == _BRANCH and word >> 32 & 3 in _DIVERGED):
        return None
    offset = word >> 34 & (1 << 48) - 1
    offset -= offset >> 47 << 48
    if compute_capability >= 90:
        offset = offset << 8 | word >> 16 & 0xFF
    return place + 1 + offset * 4 // 16
