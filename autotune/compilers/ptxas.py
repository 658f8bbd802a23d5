"""Reading ptxas's resource report (`-Xptxas -v`)."""

import re

from autotune.compilers.artifact import KernelReport

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([^\s']+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_LOSS = re.compile(r"\((C\d+)\) Potential Performance Loss: (.*?)(?: in (?:the )?function '([^']+)')?\.?\s*$")
_SMEM = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")


def parse_ptxas(output: str) -> tuple[KernelReport, ...]:
    """One report a kernel, in the order the compiler lists them.

    The report does not say which kernels call a function that was not inlined, so its spills count for each kernel; nor
    which kernel's `setmaxnreg` is ignored, so that counts for each, too.
    """
    used: dict[str, tuple[int, int]] = {}  # registers, static shared memory
    frames: dict[str, tuple[int, int]] = {}  # stack, spills; of functions that are no kernel too
    losses: dict[str, str] = {}  # by function; of no function in particular
    entry = function = ""
    for line in output.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
        elif match := _LOSS.search(line):
            losses.setdefault(match[3] or "", f"{match[2]} ({match[1]})")
        elif match := _PROPERTIES.search(line):
            function = match[1]
        elif match := _FRAME.search(line):
            frames[function] = (int(match[1]), int(match[2]) + int(match[3]))
        elif entry and (match := _USED.search(line)):
            used[entry] = (int(match[1]), _static_smem(line))
    elsewhere = sum(spills for name, (_, spills) in frames.items() if name not in used)
    return tuple(
        KernelReport(
            kernel=name,
            registers=registers,
            spill_bytes=frames.get(name, (0, 0))[1] + elsewhere,
            static_smem=smem,
            stack_bytes=frames.get(name, (0, 0))[0],
            loss=losses.get(name, losses.get("", "")),
        )
        for name, (registers, smem) in used.items()
    )


def _static_smem(line: str) -> int:
    match = _SMEM.search(line)
    return 0 if match is None else int(match[1]) + int(match[2] or 0)
