"""Time shipped winners anew, whose family has changed since: each one's configuration, and others like it.

    python -m benchmarks.renew_winners --op backward --template flash_wgmma --vary NEXT_KERNEL --out renewed --total 200
    python -m benchmarks.merge_winners renewed/records.jsonl.gz

A search of each winner's problem among the configurations that have the winner's values, but any value of the
parameters that `--vary` names: verified, timed, examined and recorded as any search. Rows that changed machine code
made stale (`autotune db recheck` tells which) are winners again at a fraction of what a search of all would take. All
is built ahead, on all cores. Needs a GPU.
"""

import argparse
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.candidate import Candidate
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.factory import CudaOpener, DeviceOpener
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import Template, find_template
from autotune.gpus.known import gpu
from autotune.gpus.present import present_gpu
from autotune.gpus.spec import DeviceSpec
from autotune.store import Store, open_store
from autotune.store.shipped import shipped_winners
from autotune.tuning.budget import Clock
from autotune.tuning.choose import Subject, choose_subject
from autotune.tuning.events import silent
from autotune.tuning.pins import pinned
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_with
from benchmarks.prefetch import ReadyWorker, References
from benchmarks.search_rows import write_records


def winners(op: str, template: str, pattern: str) -> Iterator[tuple[Problem, Candidate]]:
    """Those that ship of a family, whose problems' keys match; the shortest problems first."""
    lines = [line for line in shipped_winners() if (line.problem.op, line.candidate.template) == (op, template)]
    for line in sorted(lines, key=lambda line: int(line.problem["T"]) * int(line.problem["T_kv"])):
        if re.search(pattern, line.problem.key):
            yield line.problem, line.candidate


def alike(template: Template, candidate: Candidate, vary: Sequence[str]) -> dict[str, tuple[Value, ...]]:
    """The values to search among: the candidate's, and of the parameters to vary all, or those that follow its name
    (`ORDER=plain,late`). Parameters that a family has got since have their defaults."""
    chosen = {name: set(filter(None, those.split(","))) for name, _, those in (item.partition("=") for item in vary)}
    found: dict[str, tuple[Value, ...]] = {}
    for parameter in template.parameters:
        own = candidate.config.get(parameter.name, parameter.values[0])
        of = chosen.get(parameter.name)
        found[parameter.name] = (own,) if of is None else tuple(v for v in parameter.values if not of or str(v) in of)
    return found


def subject_of(
    template: Template, problem: Problem, candidate: Candidate, vary: Sequence[str], spec: DeviceSpec
) -> Subject | None:
    """What to search for a winner's problem; None where nothing of it is valid any more."""
    subject = pinned(choose_subject(problem.op, (template.name,)), alike(template, candidate, vary))
    return subject if Space(subject.templates[0], problem, spec).size else None


@contextmanager
def built_ahead(
    template: Template,
    rows: Sequence[tuple[Problem, Candidate]],
    vary: Sequence[str],
    spec: DeviceSpec,
    jobs: int | None,
) -> Iterator[None]:
    """Begin to build all that will be asked for; lengths are no constants of kernels: many problems share a build."""
    with BuildPool(BuildCache(), jobs or os.cpu_count() or 1) as pool:
        for problem, candidate in rows:
            subject = subject_of(template, problem, candidate, vary, spec)
            for config in Space(subject.templates[0], problem, spec).configs() if subject is not None else ():
                pool.submit(CubinRequest(render(template, problem, config, spec), spec.arch))
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns how many problems are without a winner afterwards, of those that were reached."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # references: many at a time, on a thread each
    options.out.mkdir(parents=True, exist_ok=True)
    index, count = (int(part) for part in options.shard.split("/"))
    template, opener = find_template(options.op, options.template), CudaOpener(0)
    rows = list(winners(options.op, options.template, options.rows))[index::count]
    start, failed = time.monotonic(), 0
    with open_store(options.out / "records.db") as store:
        try:
            spec = present_gpu(0) or gpu("h200")
            with (
                built_ahead(template, rows, options.vary, spec, options.jobs),
                References([problem for problem, _ in rows], 0, options.references) as references,
            ):
                worker = ReadyWorker(opener, references)
                left = dict(rows)
                while left and (options.total is None or time.monotonic() - start < options.total):
                    problem = references.next_of(list(left))
                    failed += not _renew(worker, opener, store, template, problem, left.pop(problem), options)
                worker.end()
            for problem in left:
                print(f"no time left for {problem.key}", flush=True)
        finally:
            print(f"{write_records(store, options.out)} records in {options.out}/records.jsonl.gz", flush=True)
    return failed


def _renew(
    worker: ReadyWorker,
    opener: DeviceOpener,
    store: Store,
    template: Template,
    problem: Problem,
    candidate: Candidate,
    options: argparse.Namespace,
) -> bool:
    """Whether the problem has a winner now. What fails is reported, and the others go on."""
    start = time.monotonic()
    try:
        spec = worker.start().identity.spec
        subject = subject_of(template, problem, candidate, options.vary, spec)
        if subject is None:
            print(f"{problem.key}: nothing like {candidate} is valid any more", flush=True)
            return False
        search = Options(options.trials, options.seconds, jobs=options.jobs, spills=False).checked()
        result = search_with(worker, Clock(search.budget(opener)), subject, problem, search, store, silent)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other problems are still to be timed
        print(f"FAILED {problem.key}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        worker.end()
        return False
    best = result.best
    said = "; ".join(result.messages.values())[:200] if best is None else f"{best.ms:.4f} ms, {best.candidate}"
    print(f"{time.monotonic() - start:5.1f} s {problem.key}: {said}", flush=True)
    return best is not None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="time shipped winners anew, whose family has changed since")
    parser.add_argument("--op", default="backward")
    parser.add_argument("--template", default="flash_wgmma")
    parser.add_argument("--rows", default="", help="only problems whose keys match this regular expression")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="NAME[=VALUE,...]",
        help="a parameter of which all values are tried, or these",
    )
    parser.add_argument("--shard", default="0/1", help="INDEX/COUNT: every COUNT-th problem")
    parser.add_argument("--out", type=Path, required=True, help="folder of the database and of what it exports")
    parser.add_argument("--total", type=float, default=None, help="seconds after which no problem is begun")
    parser.add_argument("--seconds", type=float, default=20.0, help="at most so many for each search")
    parser.add_argument("--trials", type=int, default=6, help="configurations of a problem")
    parser.add_argument("--jobs", type=int, default=None, help="builds at a time [default: one a core]")
    parser.add_argument("--references", type=int, default=4, help="processes that make references ahead")
    return parser


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
