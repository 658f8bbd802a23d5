"""How well estimates rank what a GPU measured.

    python -m benchmarks.estimate_quality measured.jsonl … --samples samples.jsonl

`measured.jsonl` is an export of a database (`autotune db export`) with measurements of shipped families: trials that
ended ok or were given up as slow, whose templates have not changed since (`benchmarks.estimate_measure` makes one).
Each configuration is rendered, built for the GPU and traced, and run on the emulator (seconds of a core); `--samples`
keeps what was counted, and a second run goes on from there. With a samples file alone the table is printed from it.
"""

import argparse
import gzip
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.core.errors import AutotuneError
from autotune.core.measurement import Measurement
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.estimate.counting import count
from autotune.estimate.occupancy import kernel_resources
from autotune.estimate.schedule import schedules_of
from autotune.families.op_ref import OpRef
from autotune.families.render import render
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.trace.task import Traced, TraceTask, run_task
from benchmarks.estimate_samples import HEADER, Group, Sample, load_samples, qualities, save_samples


@dataclass(frozen=True)
class Measured:
    """One candidate on one device, its finals preferred to its trial."""

    device: str
    group: Group
    problem: Problem
    config: tuple[tuple[str, Value], ...]
    ms: float


def read_exports(paths: Sequence[Path]) -> list[Measured]:
    """Timed candidates of templates as they are now."""
    found: dict[Any, list[tuple[bool, Measured]]] = defaultdict(list)
    for line in (line for path in paths for line in _text(path).splitlines()):
        record = json.loads(line)
        if record.get("record") != "measurement" or not record["measurement"]["timing"]:
            continue
        measured = _measured(record)
        if measured is not None:
            found[measured.problem, measured.config].append((record["stage"] == "final", measured))
    return [_best(records) for records in found.values()]


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def _measured(record: dict[str, Any]) -> Measured | None:
    fields, candidate = dict(record["problem"]), record["candidate"]
    op = fields.pop("op")
    if (
        record["device"]["kind"] != "cuda"
        or find_template(op, candidate["template"]).hash != candidate["template_hash"]
    ):
        return None
    measurement = Measurement.from_json(record["measurement"])
    assert measurement.ms is not None
    return Measured(
        record["device"]["spec"]["name"], (op, candidate["template"], str(fields["dtype"])),
        OpRef(op).resolve().problem(**fields), tuple(candidate["config"].items()), measurement.ms,
    )  # fmt: skip


def _best(records: Sequence[tuple[bool, Measured]]) -> Measured:
    finals = [measured for final, measured in records if final] or [measured for _, measured in records]
    middle = median(measured.ms for measured in finals)
    return min(finals, key=lambda measured: abs(measured.ms - middle))


def choose(measured: Sequence[Measured], most: int, seed: int) -> Iterator[Measured]:
    """At most `most` configurations of each group, at all lengths they were measured at."""
    groups: dict[Group, dict[Any, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for one in measured:
        groups[one.group][one.config].append(one)
    for group in sorted(groups):
        configs = sorted(groups[group], key=str)
        Random(seed).shuffle(configs)
        for config in configs[:most]:
            yield from groups[group][config]


def sample(measured: Measured, cache: BuildCache | None = None) -> Sample:
    """Counts and schedules of one candidate.

    Raises:
        AutotuneError: it does not build or run.
    """
    op_name, family, _ = measured.group
    cache = cache or BuildCache()
    ref, template, spec = OpRef(op_name), find_template(op_name, family), gpu(measured.device)
    source = render(template, measured.problem, dict(measured.config), spec)
    task = TraceTask(ref, template.path, measured.problem, measured.config, spec, blocks=None)
    counts = count(_traced, task, ref.resolve(), source.plan)
    cubin = CubinRequest(source, spec.arch).build(cache)
    resources = kernel_resources(source.plan, cubin, spec)
    schedules = schedules_of(cubin.path, source.plan, resources, counts, spec)
    return Sample(
        spec.name, measured.group, measured.problem.integer("T"), dict(measured.config), measured.ms, source.plan,
        resources, counts, schedules,
    )  # fmt: skip


@lru_cache(maxsize=8)
def _traced(task: TraceTask) -> Traced:
    """The short problems of one configuration are the same at all lengths."""
    return run_task(task)


def _samples(of_one_configuration: Sequence[Measured]) -> tuple[list[Sample], list[str]]:
    """Samples, and why others were left out; run in a process of its own."""
    found, failed = [], []
    for measured in of_one_configuration:
        try:
            found.append(sample(measured))
        except AutotuneError as error:
            failed.append(f"{measured.group} {dict(measured.config)}: {error}")
    return found, failed


def _key(group: Group, T: int, config: dict[str, Value]) -> str:
    return json.dumps([group, T, config], sort_keys=True)


def collect(measured: Sequence[Measured], path: Path | None, jobs: int) -> list[Sample]:
    """Samples of all of them; those that the file has are not counted again."""
    samples = load_samples(path) if path is not None and path.exists() else []
    known = {_key(one.group, one.T, one.config) for one in samples}
    missing: dict[Any, list[Measured]] = defaultdict(list)
    for one in measured:
        if _key(one.group, one.problem.integer("T"), dict(one.config)) not in known:
            missing[one.group, one.config].append(one)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for number, (found, failed) in enumerate(pool.map(_samples, missing.values()), 1):
            samples += found
            print(*(f"left out: {text}" for text in failed), sep="\n", end="\n" if failed else "", file=sys.stderr)
            if path is not None and (number % 20 == 0 or number == len(missing)):
                save_samples(path, samples)
    return samples


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="*", help="exported JSON lines, compressed if so named")
    parser.add_argument("--samples", type=Path, help="where counts are kept")
    parser.add_argument("--most", type=int, default=80, help="configurations of each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that count")
    options = parser.parse_args()
    if not options.measured and options.samples is None:
        parser.error("give exported measurements, or --samples")
    measured = read_exports(options.measured)
    samples = collect(list(choose(measured, options.most, options.seed)), options.samples, options.jobs)
    print(HEADER)
    for quality in qualities(samples):
        print(quality.row())


if __name__ == "__main__":
    main()
