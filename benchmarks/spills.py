"""What the compiler says of every shipped winner: registers, spills, stack and shared memory of each kernel.

    python -m benchmarks.spills [--arch sm_90a] [FILE.jsonl …]

Needs a compiler and no GPU. Exits with 1 if any kernel of any winner spills or uses stack memory.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.compilers.artifact import Artifact, KernelReport
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.errors import BuildError, CompileError, NoFeasibleConfiguration
from autotune.core.measurement import KernelResources
from autotune.estimate.occupancy import kernel_resources
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import find_template
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from benchmarks.merge_winners import is_current, is_valid, lines_of
from benchmarks.rows import Row


@dataclass(frozen=True)
class Built:
    """A distinct binary, the winners that use it, and what the compiler reported; a text where it has no binary."""

    labels: tuple[str, ...]
    candidate: str
    source: KernelSource
    arch: str
    reports: tuple[KernelReport, ...]
    resources: tuple[KernelResources, ...]
    failure: str = ""

    @property
    def clean(self) -> bool:
        """Whether it was built and no kernel spills or has a stack."""
        return not self.failure and not any(report.spill_bytes or report.stack_bytes for report in self.reports)


def winners(paths: Sequence[Path]) -> list[Line]:
    """The winners of files, or those that are shipped."""
    if not paths:
        return list(shipped_winners())
    return [line for path in paths for line in lines_of(path) if line.is_winner]


def build_winners(lines: Iterable[Line], arch: str | None, jobs: int | None = None) -> list[Built]:
    """Build every winner's kernels; those whose code and launches' sizes are the same once."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        p = line.problem
        groups.setdefault((p.op, line.candidate.key, f"{p.dtype} {p['HS']} {p['causal']} {p['layout']}"), []).append(
            line
        )
    results = []
    with BuildPool(BuildCache(), jobs) as pool:
        pending = []
        for members in groups.values():
            target = arch or members[0].identity.spec.arch
            source = _render(members[0])
            future = None if isinstance(source, str) else pool.submit(CubinRequest(source, target))
            pending.append((members, target, source, future))
        for members, target, source, future in pending:
            outcome: Artifact | str
            try:
                outcome = future.result() if future is not None else str(source)
            except (CompileError, BuildError) as error:
                outcome = str(error)
            results.append(_built(members, target, source, outcome))
    return results


def _render(line: Line) -> KernelSource | str:
    if not is_valid(line):
        return "its configuration is no longer valid: the template has changed"
    try:
        template = find_template(line.problem.op, line.candidate.template)
        return render(template, line.problem, line.candidate.config, line.identity.spec)
    except NoFeasibleConfiguration as error:
        return str(error)


def _built(members: Sequence[Line], arch: str, source: KernelSource | str, outcome: Artifact | str) -> Built:
    labels = tuple(Row(line.problem).label + ("" if is_current(line) else " (stale)") for line in members)
    candidate = members[0].candidate.key
    if isinstance(source, str) or isinstance(outcome, str):
        assert isinstance(outcome, str)
        return Built(labels, candidate, source, arch, (), (), outcome)  # type: ignore[arg-type]
    resources = kernel_resources(source.plan, outcome, members[0].identity.spec)
    return Built(labels, candidate, source, arch, outcome.kernels, resources)


def table(built: Iterable[Built]) -> str:
    """A line a kernel, in Markdown."""
    lines = [
        "| winner of | family | kernel | registers | spilled | stack | shared memory | threads | occupancy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in built:
        more = f" and {len(one.labels) - 1} more" if len(one.labels) > 1 else ""
        head = f"| {one.labels[0]}{more} | {one.candidate.partition(' ')[0]} "
        if one.failure:
            lines.append(f"{head}| NOT BUILT: {one.failure.splitlines()[0]} | | | | | | |")
        for report, used in zip(one.reports, _used(one), strict=True):
            smem = report.static_smem + (used.dynamic_smem if used else 0)
            launch = f"{used.threads} | {used.occupancy:.2f}" if used else " | "
            lines.append(
                f"{head}| {report.kernel} | {report.registers} | {report.spill_bytes} | {report.stack_bytes} | {smem} "
                f"| {launch} |"
            )
    return "\n".join(lines)


def _used(built: Built) -> list[KernelResources | None]:
    """Each reported kernel's launch."""
    by_name = {resources.kernel: resources for resources in built.resources}
    return [by_name.get(report.kernel) for report in built.reports]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, print, and return how many distinct binaries are not clean."""
    parser = argparse.ArgumentParser(description="registers, spills and stack of the shipped winners")
    parser.add_argument("files", type=Path, nargs="*", help="winners as JSON lines [default: those shipped]")
    parser.add_argument("--arch", default=None, help="compile for this [default: the winner's GPU]")
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args(arguments)
    lines = winners(options.files)
    built = build_winners(lines, options.arch, options.jobs)
    bad = [one for one in built if not one.clean]
    print(table(built))
    print(
        f"\n{len(lines)} winners, {len(built)} distinct binaries, {len(bad)} that spill, have a stack or were not built"
    )
    for one in bad:
        spilled = ", ".join(f"{r.kernel} {r.spill_bytes} B spilled, {r.stack_bytes} B stack" for r in one.reports)
        print(f"  {'; '.join(one.labels)}: {one.candidate}: {one.failure or spilled}")
    return len(bad)


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
