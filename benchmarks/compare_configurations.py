"""What a change of parameters is worth: shipped winners beside themselves with other values, in turn in one process.

    python -m benchmarks.compare_configurations --op backward --template flash_wgmma --rows "HS=64 .*causal=0" \\
        --try NEXT_KERNEL=at_end --try NEXT_KERNEL=at_start,Q_STAGES=3 --out pdl.jsonl

Each row is a shipped winner of the family whose problem matches one of the expressions. Each `--try` is a contender:
the winner with these values, where that is a valid configuration. `--lines` reads rows from a file in place of winners:
{"problem": …, "configs": {name: {…}}}, a line each. All are built first, on all cores. Then, row by row, each contender
is called through `autotune.kernel`'s own path, in turn, `--rounds` times, between two events, L2 flushed: the line has
medians of all rounds, and the first one's time over each. Results are compared with the first one's. Needs a GPU and
torch; `--list` neither.
"""

import argparse
import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.answers.best import Best
from autotune.bench.exact import difference
from autotune.bench.ours import Ours, build_all, look_up, with_forwards
from autotune.bench.rounds import Timed, interleaved
from autotune.bench.torch_lab import TorchLab, open_lab
from autotune.core.errors import AutotuneError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.driver import cuda_driver
from autotune.devices.protocol import TimingBudget
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.store.shipped import shipped_winners

_NOWHERE = "/nowhere/none.db"
_FIRST = "winner"


@dataclass(frozen=True)
class Row:
    """A problem, and configurations by name; the first one is what the others are measured by."""

    problem: Problem
    configs: Mapping[str, Mapping[str, Value]]


def winners(template: Template, patterns: Sequence[str], tries: Mapping[str, Mapping[str, Value]]) -> Iterator[Row]:
    """Shipped winners of a family, each with what is tried; the problem's key matches one of `patterns`."""
    for line in shipped_winners():
        problem, candidate = line.problem, line.candidate
        if (problem.op, candidate.template) != (template.op, template.name):
            continue
        if any(re.search(pattern, problem.key) for pattern in patterns):
            first = {**template.defaults, **candidate.config}
            yield Row(problem, {_FIRST: first, **{name: {**first, **given} for name, given in tries.items()}})


def lines(path: Path) -> Iterator[Row]:
    """Rows of a file."""
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.strip():
            data = json.loads(text)
            fields = dict(data["problem"])
            yield Row(get_op(fields.pop("op")).problem(**fields), data["configs"])


def valid(row: Row, template: Template, spec: DeviceSpec) -> Row:
    """The row without what is no configuration of the family for its problem, or the same as one before."""
    space, kept = Space(template, row.problem, spec), dict[str, Mapping[str, Value]]()
    for name, config in row.configs.items():
        if config not in kept.values() and space.why_not(config) is None:
            kept[name] = config
    return Row(row.problem, kept)


def answer(template: Template, problem: Problem, config: Mapping[str, Value], spec: DeviceSpec) -> Best:
    """A configuration as a look-up answers it."""
    candidate = Space(template, problem, spec).candidate(config)
    return Best("default", "none", None, problem, spec, candidate, template=template)


def measured(lab: TorchLab, row: Row, template: Template, rounds: int, seconds: float) -> dict[str, Any]:
    """Medians in milliseconds by name, and how far results are from the first one's; what failed says why."""
    tensors = lab.tensors(row.problem)
    look = look_up(lab.spec, _NOWHERE)
    calls, results, failed = dict[str, Any](), dict[str, Any](), dict[str, str]()
    for name, config in row.configs.items():
        found = answer(template, row.problem, config, lab.spec)

        def answered(problem: Problem, found: Best = found) -> Best:
            return found if problem == found.problem else look(problem)

        ours = Ours(lab.torch, answered, cuda_driver(), lab.index, in_place=True)
        try:
            results[name] = ours.results(row.problem, tensors)
            calls[name] = ours.call(row.problem, tensors)
        except AutotuneError as error:
            failed[name] = str(error)
    lab.wait()
    first = next(iter(results.values()))
    apart = {name: difference(got, first) for name, got in results.items()}
    budget = TimingBudget(max_seconds=seconds)
    times = interleaved(list(calls), lambda name: Timed(lab.kernel(calls[name], budget)), rounds)
    medians = {name: statistics.median(t.kernel.median_ms for t in timed) for name, timed in times.items()}
    return {
        "problem": row.problem.to_json(), "configs": dict(row.configs), "ms": medians, "difference": apart,
        "failed": failed,
        "rounds": {name: [t.kernel.median_ms for t in timed] for name, timed in times.items()},
    }  # fmt: skip


def assigned(text: str, template: Template) -> dict[str, Value]:
    """`NAME=VALUE,NAME=VALUE` as values of the family's parameters."""
    values = {parameter.name: {str(v).lower(): v for v in parameter.values} for parameter in template.parameters}
    pairs = (part.partition("=") for part in text.split(","))
    return {name: values[name][value.lower()] for name, _, value in pairs}


def main() -> int:
    """Build, measure, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="backward")
    parser.add_argument("--template", default="flash_wgmma")
    parser.add_argument("--rows", action="append", help="a regular expression for problems' keys; several may be given")
    parser.add_argument("--try", action="append", default=[], dest="tries", metavar="NAME=VALUE,…")
    parser.add_argument("--lines", type=Path, help="rows of a file, in place of winners")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.06, help="a round of a contender")
    parser.add_argument(
        "--list", action="store_true", help="print what would be measured, as --lines reads it; needs no GPU"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    template = next(t for t in builtin_templates(given.op) if t.name == given.template)
    tries = {text: assigned(text, template) for text in given.tries}
    rows = list(lines(given.lines) if given.lines else winners(template, given.rows or ["."], tries))
    lab = None if given.list else open_lab(None)
    spec = gpu("h200") if lab is None else lab.spec
    rows = [valid(row, template, spec) for row in rows]
    if lab is None:
        for row in rows:
            print(json.dumps({"problem": row.problem.to_json(), "configs": dict(row.configs)}))
        return 0
    look = look_up(spec, _NOWHERE)
    wanted = {(row.problem, name): config for row in rows for name, config in row.configs.items()}
    for name in dict.fromkeys(name for _, name in wanted):
        those = [problem for problem, other in wanted if other == name]
        build_all(those, lambda problem, name=name: answer(template, problem, wanted[problem, name], spec))
    build_all([p for p in with_forwards(row.problem for row in rows) if p.op == "forward"], look)
    failures = 0
    for row in rows:
        with lab.emptied():
            found = measured(lab, row, template, given.rounds, given.seconds)
        first = next(iter(found["ms"].values()), float("nan"))
        print(row.problem)
        for name, ms in found["ms"].items():
            print(f"  {ms:8.4f} ms  {first / ms:6.3f}  apart {found['difference'][name]:.1e}  {name}")
        for name, why in found["failed"].items():
            failures += 1
            print(f"  failed: {name}: {why}")
        if given.out is not None:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
