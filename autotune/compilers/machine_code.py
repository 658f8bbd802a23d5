"""The hash of what a device executes for a candidate: its machine code and how that is launched, without names.

Two sources with the same hash do the same, instruction for instruction: comments, names of variables and functions,
the division into headers and whatever else the compiler sees through are not in it. In it are, of each kernel in the
order of first launch, the instructions, the registers, barriers, stack and shared memory that it asks for, its
constants and the layout of its parameters; then what kernels share (constants and variables); then every step of the
plan: sizes of grid, block and dynamic shared memory, arguments by position, buffers of the workspace by size.

What the attributes in `.nv.info` sections mean is not needed: all are hashed, with symbols in place of their numbers.
Where symbols stand in them was read off cubins of nvcc 13 for sm_75 to sm_120.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.compilers.elf import ALLOCATED, Elf, Section
from autotune.core.errors import BuildError
from autotune.core.plan import Arg, LaunchPlan, ScalarArg, TensorMapArg, ViewArg, Zero

_CODE = ".text."
_INFO = ".nv.info"
_VALUES = 4  # the form of an attribute that is followed by as many bytes as it says
_PARAMETERS, _EXTERNAL = 0x0A, 0x0F  # attributes of a kernel that begin with, or are, numbers of symbols


def machine_code(cubin: Path, plan: LaunchPlan, reference: str = "") -> str:
    """The hash (32 hex digits) of a cubin's machine code, launched as `plan` says.

    A user's op has a `reference` with a version: what was right by one may be wrong by another, so it counts.

    Raises:
        BuildError: the file is no cubin, is damaged, or lacks a kernel of the plan.
    """
    try:
        code = _Code(Elf(cubin.read_bytes()), plan.kernels)
        lines = [*code.lines(), *_steps(plan), *([f"reference {reference}"] if reference else [])]
    except (OSError, struct.error, ValueError, IndexError) as error:
        raise BuildError(f"cannot read the machine code of {cubin}: {error or 'it is damaged'}") from error
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


class _Code:
    """A cubin's functions by position: first the kernels as they are launched, then all others."""

    def __init__(self, elf: Elf, kernels: Sequence[str]) -> None:
        self._elf = elf
        names = [section.name.removeprefix(_CODE) for section in elf.sections if section.name.startswith(_CODE)]
        missing = [kernel for kernel in kernels if kernel not in names]
        if missing:
            raise ValueError(f"it has no kernel {missing[0]}, only {', '.join(names) or 'none'}")
        others = sorted(set(names) - set(kernels), key=lambda name: (elf.named[_CODE + name].data, name))
        self._place = {name: place for place, name in enumerate([*kernels, *others])}

    def lines(self) -> Iterator[str]:
        """All that decides what is executed, one fact a line."""
        loaded = [section for section in self._elf.sections if section.flags & ALLOCATED]
        yield from sorted(line for section in loaded for line in self._section(section))
        yield from sorted(
            f"{self._role(section.name)} {attribute}"
            for section in self._elf.sections
            if section.name.startswith(_INFO)
            for attribute in self._attributes(section)
        )

    def _role(self, name: str) -> str:
        """A section's name with a function's position in place of its name."""
        for function, place in self._place.items():
            if name.endswith("." + function):
                return f"{name.removesuffix(function)}{place}"
        return name

    def _section(self, section: Section) -> Iterator[str]:
        role, registers = self._role(section.name), section.info >> 24  # of older cubins
        yield f"{role} {section.flags:x} {registers} {section.size} {hashlib.sha256(section.data).hexdigest()}"
        for place in self._elf.relocations(section):
            yield f"{role} at {place.offset}: {place.kind} {self._symbol(place.symbol)} {place.addend}"

    def _symbol(self, number: int) -> str:
        symbol = self._elf.symbols[number]
        if symbol.section == 0:
            return symbol.name  # of the driver's: a call of vprintf is not one of malloc
        if symbol.section >= len(self._elf.sections):  # one of the numbers with a meaning of their own
            return f"{symbol.section}+{symbol.value}"
        return f"{self._role(self._elf.sections[symbol.section].name)}+{symbol.value}"

    def _attributes(self, section: Section) -> Iterator[str]:
        data, at = section.data, 0
        while at < len(data):
            form, attribute, value = struct.unpack_from("<BBH", data, at)
            at += 4
            words = [f"{value:x}"]
            if form == _VALUES:
                if at + value > len(data):
                    raise ValueError(f"an attribute of {section.name} reaches beyond its end")
                words = self._words(attribute, data[at : at + value], of_kernel=section.name != _INFO)
                at += value
            yield f"{attribute:x} {' '.join(words)}"

    def _words(self, attribute: int, data: bytes, *, of_kernel: bool) -> list[str]:
        count = len(data) // 4
        numbers = struct.unpack_from(f"<{count}I", data)
        symbols = {_PARAMETERS: 1, _EXTERNAL: count}.get(attribute, 0) if of_kernel else 1
        named = sorted(self._symbol(number) for number in numbers[:symbols])
        return [*named, *(f"{number:x}" for number in numbers[symbols:]), data[4 * count :].hex()]


def _steps(plan: LaunchPlan) -> Iterator[str]:
    workspace = [buffer.name for buffer in plan.buffers if buffer.role == "workspace"]
    buffers = {name: f"workspace {place}" for place, name in enumerate(workspace)}
    for buffer in plan.buffers:
        yield f"{buffers.get(buffer.name, buffer.name)}: {buffer.nbytes}"
    for step in plan.steps:
        if isinstance(step, Zero):
            yield f"zero {buffers.get(step.buffer, step.buffer)}"
            continue
        more = f" {step.cluster}" * step.clustered + " overlaps" * step.overlaps
        yield f"launch {plan.kernels.index(step.kernel)} {step.grid} {step.block} {step.smem}{more}"
        for arg in step.args:
            yield _argument(arg, buffers)


def _argument(arg: Arg, buffers: dict[str, str]) -> str:
    if isinstance(arg, ScalarArg):
        return f"{arg.ctype} {arg.value!r}"
    if isinstance(arg, TensorMapArg):
        place = buffers.get(arg.storage, arg.storage)
        more = " anywhere" * arg.anywhere
        return f"map {place} {arg.dtype} {arg.offset} {arg.extents} {arg.strides} {arg.box} {arg.swizzle}{more}"
    strides = arg.strides if isinstance(arg, ViewArg) else ()
    return f"{buffers.get(arg.storage, arg.storage)} {arg.dtype} {arg.offset} {strides}"
