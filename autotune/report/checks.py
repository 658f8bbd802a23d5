"""How a check is shown: findings, counters by kernel and line, hints."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from autotune.checker.check import Checked
from autotune.families.template_lines import TemplateLines
from autotune.trace.observed import Arithmetic, KernelTrace

Row = tuple[object, ...]

LINE_COLUMNS = (">line", "what", ">requests", ">sectors each", ">ideal", ">passes", ">conflicts", ">worst", "source")
"""Of `line_rows`; columns that begin with `>` are set to the right."""

WORK_COLUMNS = (
    ">line", ">fp32", ">fp16", ">special", ">tensor", ">barriers", ">shuffles", ">votes", "source",
)  # fmt: skip
"""Of `work_rows`."""

KERNEL_COLUMNS = (
    "kernel", ">blocks", ">traced", ">coalescing", ">passes", ">conflicts", ">read MB", ">written MB", ">atomics",
    ">barriers", ">shuffles", ">tensor Mflop", ">fp32 Mflop", ">fp16 Mflop",
)  # fmt: skip
"""Of `kernel_rows`."""


def kernel_rows(checked: Checked) -> Iterator[Row]:
    """One row a launch; counts are of all blocks."""
    for kernel in checked.trace.kernels:
        conflicts = f"{kernel.conflicts / kernel.wavefronts:.1%}" if kernel.conflicts and kernel.wavefronts else "0"
        yield (
            kernel.kernel, kernel.blocks, len(kernel.traced), f"{kernel.coalescing:.0%}", _count(kernel.wavefronts),
            conflicts, f"{kernel.bytes_read / 1e6:.4g}",
            f"{kernel.bytes_written / 1e6:.4g}", _count(kernel.lanes("global atomic", "shared atomic")),
            _count(kernel.requests("barrier")), _count(kernel.requests("shuffle", "vote")),
            f"{kernel.tensor_operations / 1e6:.4g}", f"{kernel.scale * kernel.arithmetic.fp32 / 1e6:.4g}",
            f"{kernel.scale * kernel.arithmetic.fp16 / 1e6:.4g}",
        )  # fmt: skip


def line_rows(kernel: KernelTrace, source: Sequence[str], lines: TemplateLines) -> Iterator[Row]:
    """One row an instruction that touches memory, in the blocks that were traced.

    `source`: the rendered lines; `lines`: those of the template, which are shown where they are known.
    """
    for row in kernel.lines:
        if not row.sectors and not row.wavefronts:
            continue
        number = row.place.line
        text = source[number - 1].strip() if 0 < number <= len(source) else row.place.inner
        moved = [f"{n / row.requests:.3g}" if row.sectors else "" for n in (row.sectors, row.ideal_sectors)]
        passes = ("", "", "")
        if row.wavefronts:
            passes = (str(row.wavefronts), str(row.conflicts or ""), f"{row.worst}-way" if row.worst > 1 else "")
        yield lines(number) or number, f"{row.operation} {8 * row.nbytes}", row.requests, *moved, *passes, text[:80]


def work_rows(kernel: KernelTrace, source: Sequence[str], lines: TemplateLines) -> Iterator[Row]:
    """One row a line that computes, waits or exchanges, in the blocks that were traced; arguments as `line_rows`."""
    computed = {row.line: row.arithmetic for row in kernel.computed}
    requests: dict[int, Counter[str]] = defaultdict(Counter)
    for row in kernel.of("tensor", "barrier", "warp barrier", "shuffle", "vote"):
        requests[row.place.line][row.operation.removeprefix("warp ")] += row.requests
    for line in sorted(computed.keys() | requests.keys()):
        done, asked = computed.get(line, Arithmetic()), requests[line]
        text = source[line - 1].strip() if 0 < line <= len(source) else ""
        counts = (done.fp32, done.fp16, done.special, *(asked[name] for name in _ASKED))
        yield lines(line) or line or "", *(count or "" for count in counts), text[:80]


_ASKED = ("tensor", "barrier", "shuffle", "vote")


def compulsory(checked: Checked) -> str:
    """`moves 12.3 MB, of which 2.1 MB (17 %) are compulsory`."""
    moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in checked.trace.kernels)
    least = checked.compulsory_bytes
    share = f" ({min(1.0, least / moved):.0%})" if moved else ""
    return f"{moved / 1e6:.4g} MB between L1 and L2, of which {least / 1e6:.4g} MB{share} are compulsory"


def verdict(checked: Checked) -> str:
    """One line: what was found."""
    if checked.error:
        return f"not checked: {checked.error}"
    if not checked.findings:
        return "nothing found"
    kinds = ", ".join(dict.fromkeys(finding.kind for finding in checked.findings))
    return f"{len(checked.findings)} found: {kinds}"


def sampling(checked: Checked) -> str:
    """What was looked at."""
    parts = [
        f"{kernel.kernel}: all {kernel.blocks} blocks" if len(kernel.traced) == kernel.blocks else
        f"{kernel.kernel}: {len(kernel.traced)} of {kernel.blocks} blocks"
        for kernel in checked.trace.kernels
    ]  # fmt: skip
    sampled = any(len(kernel.traced) < kernel.blocks for kernel in checked.trace.kernels)
    return f"{'; '.join(parts)} in full{' (of the others global memory alone)' if sampled else ''}" if parts else ""


def _count(number: float) -> str:
    return f"{number:.4g}" if number < 1e4 else f"{number:.3e}"
