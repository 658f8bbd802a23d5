"""How well estimates rank what a GPU measured.

    python -m benchmarks.estimate_quality measured.jsonl --samples samples.jsonl

`measured.jsonl` is an export of a database (`autotune db export`) with measurements of shipped families: trials that
ended ok or were given up as slow, whose templates have not changed since. Each configuration is rendered, built traced
and run on the emulator (about 2 s); `--samples` keeps what was counted, and a second run goes on from there. With a
samples file alone the table is printed from it at once.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from autotune.check.process import TracingProcess
from autotune.check.task import TraceTask
from autotune.devices.gpus import gpu
from autotune.errors import AutotuneError
from autotune.estimate.counting import count
from autotune.measurement import KernelResources, Measurement
from autotune.ops.locate import OpRef
from autotune.problem import Problem
from autotune.render import render
from autotune.template import find_template
from autotune.values import Value
from benchmarks.estimate_samples import HEADER, Group, Sample, load_samples, qualities, save_samples


@dataclass(frozen=True)
class Measured:
    """One candidate on one device, its finals preferred to its trial."""

    device: str
    group: Group
    problem: Problem
    config: tuple[tuple[str, Value], ...]
    ms: float
    resources: tuple[KernelResources, ...]


def read_export(path: Path) -> list[Measured]:
    """Timed candidates of templates as they are now."""
    found: dict[Any, list[tuple[bool, Measured]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record.get("record") != "measurement" or not record["measurement"]["timing"]:
            continue
        measured = _measured(record)
        if measured is not None:
            found[measured.problem, measured.config].append((record["stage"] == "final", measured))
    return [_best(records) for records in found.values()]


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
        measurement.resources,
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


def sample(measured: Measured, process: TracingProcess) -> Sample:
    """Counts of one candidate.

    Raises:
        AutotuneError: it does not build or run.
    """
    op_name, family, _ = measured.group
    ref, template, spec = OpRef(op_name), find_template(op_name, family), gpu(measured.device)
    plan = render(template, measured.problem, dict(measured.config), spec).plan
    task = TraceTask(ref, template.path, measured.problem, measured.config, spec, blocks=None)
    counts = count(process.trace, task, ref.resolve(), plan)
    T = measured.problem.integer("T")
    return Sample(
        spec.name, measured.group, T, dict(measured.config), measured.ms, plan, measured.resources, counts
    )  # fmt: skip


def _key(group: Group, T: int, config: dict[str, Value]) -> str:
    return json.dumps([group, T, config], sort_keys=True)


def collect(measured: Sequence[Measured], path: Path | None) -> list[Sample]:
    """Samples of all of them; those that the file has are not counted again."""
    samples = load_samples(path) if path is not None and path.exists() else []
    known = {_key(one.group, one.T, one.config) for one in samples}
    with TracingProcess() as process:
        for one in measured:
            if _key(one.group, one.problem.integer("T"), dict(one.config)) in known:
                continue
            try:
                samples.append(sample(one, process))
            except AutotuneError as error:
                print(f"left out: {one.group} {dict(one.config)}: {error}", file=sys.stderr)
            if path is not None:
                save_samples(path, samples)
    return samples


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="?", help="exported JSON lines")
    parser.add_argument("--samples", type=Path, help="where counts are kept")
    parser.add_argument("--most", type=int, default=80, help="configurations of each group")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.measured is None and options.samples is None:
        parser.error("give exported measurements, or --samples")
    measured = [] if options.measured is None else read_export(options.measured)
    samples = collect(list(choose(measured, options.most, options.seed)), options.samples)
    print(HEADER)
    for quality in qualities(samples):
        print(quality.row())


if __name__ == "__main__":
    main()
