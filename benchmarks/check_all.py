"""Check every shipped family: `python -m benchmarks.check_all [--configs 20] [--seed 0] [FAMILY …]`.

Each random configuration runs traced on the next of the awkward problems of its op that the family supports. Nothing
may be found. What is found is told as it is found, and a table of all families follows, as docs/results.md has it.
Exit code 1 when anything was found, or a candidate did not compile or run to its end; 2 for an unknown family.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotune.checker.awkward_tasks import awkward_tasks
from autotune.core.errors import AutotuneError
from autotune.core.values import format_config
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.registry import BUILTIN
from autotune.trace.remote import TracingProcess
from autotune.trace.task import Traced, TraceTask

HEADING = (
    "| family | runs | configurations | problems | runs with findings | seconds |",
    "|---|---|---|---|---|---|",
)
_MOST_SHOWN = 10

Trace = Callable[[TraceTask], Traced]


@dataclass(frozen=True)
class Row:
    """What came of a family: `configurations` and `problems` count different ones among its runs."""

    family: str
    runs: int
    configurations: int
    problems: int
    bad: int
    seconds: float

    def __str__(self) -> str:
        counts = f"{self.runs} | {self.configurations} | {self.problems} | {self.bad}"
        return f"| {self.family} | {counts} | {self.seconds:.0f} |"


def main() -> int:
    """Run it; whether anything was found decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="h200")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="such as backward/unfused; all by default")
    arguments = parser.parse_args()
    spec, rows = gpu(arguments.device), []
    try:
        chosen = chosen_families(arguments.families)
    except ValueError as error:
        parser.error(str(error))
    with TracingProcess(limit_s=600.0) as process:
        for name, template in chosen.items():
            rows.append(check(name, awkward_tasks(template, spec, arguments.configs, arguments.seed), process.trace))
            print(rows[-1], flush=True)
    print("\n" + "\n".join([*HEADING, *map(str, rows), str(total(rows))]))
    return 1 if any(row.bad for row in rows) else 0


def chosen_families(wanted: Sequence[str]) -> dict[str, Template]:
    """Templates by `op/family`, in the order asked for; all that are shipped if none is.

    Raises:
        ValueError: one is not shipped.
    """
    shipped = {f"{template.op}/{template.name}": template for op in BUILTIN for template in builtin_templates(op)}
    if unknown := [name for name in wanted if name not in shipped]:
        raise ValueError(f"no family {', '.join(unknown)}; shipped: {', '.join(shipped)}")
    return {name: shipped[name] for name in wanted or shipped}


def check(family: str, tasks: Iterable[TraceTask], trace: Trace) -> Row:
    """Trace all of a family's tasks; what is found is printed."""
    started, done, bad = time.monotonic(), [], 0
    for task in tasks:
        done.append(task)
        if said := list(_faults(task, trace)):
            bad += 1
            print(f"  {task.problem}\n  {format_config(dict(task.config))}")
            print("".join(f"    {text}\n" for text in said[:_MOST_SHOWN]), end="", flush=True)
    configurations, problems = {task.config for task in done}, {task.problem for task in done}
    return Row(family, len(done), len(configurations), len(problems), bad, time.monotonic() - started)


def total(rows: Sequence[Row]) -> Row:
    """All families together; a problem that several families ran counts for each."""
    runs, configurations, problems, bad = (
        sum(getattr(row, name) for row in rows) for name in ("runs", "configurations", "problems", "bad")
    )
    return Row("in all", runs, configurations, problems, bad, sum(row.seconds for row in rows))


def _faults(task: TraceTask, trace: Trace) -> Iterator[str]:
    try:
        seen = trace(task).trace
    except AutotuneError as error:
        yield str(error)
        return
    yield from map(str, seen.findings)
    if not seen.complete:
        yield seen.failure


if __name__ == "__main__":
    sys.exit(main())
