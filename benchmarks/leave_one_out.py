"""What a user would get of each shipped winner's problem if nobody had tuned it; nothing is run.

    python -m benchmarks.leave_one_out [--gpu h200] [--models] [--json]
    python -m benchmarks.leave_one_out --keep records.jsonl.gz ...     the times below from records of searches

For each winner that ships for the GPU, with it and its siblings (`benchmarks.left_out`) out of sight: what a look-up
answers and expects, over the winner's time; and what quick tuning would build. Where trials of searches are kept
(`benchmarks/data/model_trials.jsonl.gz`: of problems of models, on an H200), both are priced by them, over the fastest
trial: a configuration that was not tried counts as the one that was and differs from it in one parameter that is no
size; of others no time is known. `--models`: only problems with such trials.
"""

import argparse
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotune.answers.lookup import best
from autotune.core.candidate import Candidate, make_candidate
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.families.template import builtin_templates
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import problem_of
from autotune.store import open_store
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from autotune.tuning.choose import choose_families
from autotune.tuning.history import Records
from autotune.tuning.quick import likely
from benchmarks.left_out import left_out, siblings
from benchmarks.merge_winners import lines_of
from benchmarks.model_problems import model_problems
from benchmarks.model_table import mean

TRIALS = Path(__file__).with_name("data") / "model_trials.jsonl.gz"
GOOD = 1.03
_FUSED = ("flash_mma", "flash_wgmma")  # no other family comes near in 16 bits
_SIZES = frozenset({"BLOCK_M", "BLOCK_N", "SPLIT", "WARPS", "STAGES", "Q_STAGES", "DO_STAGES", "PACK_HEADS"})

Times = Mapping[Candidate, float]


@dataclass(frozen=True)
class Left:
    """What is known of a winner's problem without it.

    `believed`: the look-up's expected time over the winner's. `look_up`, `quick`: times by trials over the fastest one,
    None where no trial tells; of quick tuning the best of those whose times are known: `priced` of `built`.
    """

    name: str
    answer: str
    candidate: str
    believed: float | None
    look_up: float | None
    quick: float | None
    built: int
    priced: int


def lefts(spec: DeviceSpec, *, models: bool) -> Iterator[Left]:
    """A row a winner."""
    lines = [line for line in shipped_winners() if line.identity.name == spec.name]
    names = {problem.problem: problem.name for problem in model_problems()}
    for line in lines:
        if not models or line.problem in trials():
            with left_out(siblings(line, lines)):
                yield _left(line, names.get(line.problem, str(line.problem)), spec)


def _left(line: Line, name: str, spec: DeviceSpec) -> Left:
    fields: dict[str, Any] = line.problem.fields
    found = best(line.problem.op, db="/nowhere/none.db", device=spec, **fields)
    built = quick(line.problem, spec)
    times = trials().get(line.problem, {})
    fastest = min(times.values(), default=math.nan)
    priced = [ms for candidate in built if (ms := price(candidate, times)) is not None]
    answered = price(found.candidate, times)
    return Left(
        name, found.answer, found.candidate.key,
        None if found.expected_ms is None else found.expected_ms / (line.measurement.ms or math.nan),
        None if answered is None else answered / fastest, min(priced) / fastest if priced else None, len(built),
        len(priced),
    )  # fmt: skip


def quick(problem: Problem, spec: DeviceSpec) -> tuple[Candidate, ...]:
    """What quick tuning builds, of the fused families where one of them supports the problem."""
    templates = builtin_templates(problem.op)
    fused = [t for t in templates if t.name in _FUSED and t.why_unsupported(problem, spec) is None]
    chosen = tuple(fused or (t for t in templates if not t.front.historical))
    with TemporaryDirectory() as folder, open_store(Path(folder) / "empty.db") as store:
        records = Records(store, DeviceIdentity("cuda", spec), problem)
        return likely(chosen, choose_families(chosen, problem, spec), records)


def price(candidate: Candidate, times: Times) -> float | None:
    """A candidate's time, or that of the trial that is nearly the same; None where there is none."""
    if candidate in times:
        return times[candidate]
    near = [
        ms for tried, ms in times.items()
        if tried.template == candidate.template and len(apart := _apart(tried, candidate)) == 1 and not apart & _SIZES
    ]  # fmt: skip
    return min(near, default=None)


def _apart(one: Candidate, other: Candidate) -> set[str]:
    return {name for name, value in one.values if other.config.get(name) != value}


@cache
def trials() -> Mapping[Problem, Times]:
    """The times that are kept, by problem, of configurations that families still list."""
    found: dict[Problem, dict[Candidate, float]] = {}
    with gzip.open(TRIALS, "rt", encoding="utf-8") as file:
        for text in file:
            row = json.loads(text)
            problem = problem_of(row["problem"])
            templates = {template.name: template for template in builtin_templates(problem.op)}
            for name, values, ms in row["trials"]:
                template = templates[name]
                config: dict[str, Value] = {**template.defaults, **values}
                if template.lists(config):
                    found.setdefault(problem, {})[make_candidate(name, template.hash, config)] = ms
    return found


def keep(paths: Sequence[Path]) -> int:
    """Write `TRIALS` from records; returns how many times there are. Of the same candidate the lowest is kept."""
    found: dict[Problem, dict[tuple[str, tuple[tuple[str, Value], ...]], float]] = {}
    wanted = {problem.problem for problem in model_problems()}
    for line in (line for path in paths for line in lines_of(path)):
        measured, problem = line.measurement, line.problem
        if measured.outcome is Outcome.OK and measured.ms is not None and problem in wanted:
            template = next(t for t in builtin_templates(problem.op) if t.name == line.candidate.template)
            values = tuple((n, v) for n, v in line.candidate.values if template.defaults.get(n) != v)
            of_problem = found.setdefault(problem, {})
            key = (template.name, values)
            of_problem[key] = min(measured.ms, of_problem.get(key, math.inf))
    with TRIALS.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for problem, times in sorted(found.items(), key=lambda item: item[0].key):
            told = [[name, dict(values), round(ms, 5)] for (name, values), ms in sorted(times.items(), key=str)]
            file.write((json.dumps({"problem": problem.key, "trials": told}) + "\n").encode())
    return sum(map(len, found.values()))


def table(rows: Sequence[Left]) -> str:
    """A line a winner, and what they come to."""
    head = [
        "problem",
        "answer",
        "expected / winner",
        "look-up / fastest trial",
        "quick / fastest trial",
        "priced",
        "by",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        figures = ["" if one is None else f"{one:.2f}" for one in (row.believed, row.look_up, row.quick)]
        cells = [row.name, row.answer, *figures, f"{row.priced} of {row.built}", row.candidate]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *summary(rows)])


def summary(rows: Sequence[Left]) -> Iterator[str]:
    """How far off look-ups and quick tuning are, where times are known."""
    believed = [row.believed for row in rows if row.believed is not None]
    if believed:
        within = sum(0.8 <= one <= 1.25 for one in believed)
        yield f"expected times: {within} of {len(believed)} within a quarter, geometric mean {mean(believed):.3f}"
    for name in ("look_up", "quick"):
        known = {row.name: ratio for row in rows if (ratio := getattr(row, name)) is not None}
        if known:
            worst = sorted(known.items(), key=lambda item: -item[1])[:6]
            good = sum(ratio <= GOOD for ratio in known.values())
            yield (
                f"{name}: geometric mean {mean(list(known.values())):.3f} of {len(known)}, {good} within 3 %; worst "
                + ", ".join(f"{ratio:.2f} ({which})" for which, ratio in worst)
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="shipped winners, each left out in turn")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--models", action="store_true", help="only problems of which trials are kept")
    parser.add_argument("--json", action="store_true", help="a line of JSON a winner")
    parser.add_argument("--keep", type=Path, nargs="+", default=None, help="keep the times of these records, and end")
    options = parser.parse_args(arguments)
    if options.keep is not None:
        print(f"{keep(options.keep)} times in {TRIALS}")
        return
    rows = list(lefts(gpu(options.gpu), models=options.models))
    print("\n".join(json.dumps(asdict(row)) for row in rows) if options.json else table(rows))


if __name__ == "__main__":
    main()
