"""Check every shipped family: `python -m benchmarks.check_all [--configs 20] [--seed 0] [FAMILY …]`.

Each configuration runs traced on one of the awkward problems of its op. Nothing may be found. Exit code 1 otherwise.
"""

import argparse
import sys
import time
from collections.abc import Iterator

from autotune.check.awkward import awkward_tasks
from autotune.check.process import TracingProcess
from autotune.check.task import TraceTask
from autotune.devices.gpus import gpu
from autotune.errors import AutotuneError
from autotune.ops.registry import BUILTIN
from autotune.template import Template, builtin_templates
from autotune.values import format_config


def main() -> int:
    """Run it; the number of candidates with findings decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="h200")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="such as backward/unfused; all by default")
    arguments = parser.parse_args()
    wanted = set(arguments.families)
    bad = 0
    with TracingProcess(limit_s=600.0) as process:
        for template in _families():
            name = f"{template.op}/{template.name}"
            if wanted and name not in wanted:
                continue
            started = time.monotonic()
            tasks = list(awkward_tasks(template, gpu(arguments.device), arguments.configs, arguments.seed))
            found = sum(_is_bad(process, task) for task in tasks)
            bad += found
            seconds = time.monotonic() - started
            print(f"{name}: {len(tasks)} configurations, {found} with findings, {seconds:.0f} s", flush=True)
    return 1 if bad else 0


def _families() -> Iterator[Template]:
    for op in BUILTIN:
        yield from builtin_templates(op)


def _is_bad(process: TracingProcess, task: TraceTask) -> bool:
    try:
        trace = process.trace(task).trace
    except AutotuneError as error:
        said = [str(error)]
    else:
        said = [str(finding) for finding in trace.findings]
        said += [] if trace.complete else [trace.failure]
    if said:
        print(f"  {task.problem}\n  {format_config(dict(task.config))}")
        print("".join(f"    {text}\n" for text in said[:10]), end="", flush=True)
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
