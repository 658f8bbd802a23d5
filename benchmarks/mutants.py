"""Mistakes planted in every family, and the share that is noticed: `python -m benchmarks.mutants [--count 300]`.

Mistakes are made by rule (`benchmarks/mutation/rules.py`) at places that a seed draws, of each family as many, and in a
family of each kind as many as there are places for. Each is judged as a search judges a candidate: by the compiler,
by verification on the problem searched, and as a winner is examined: on three awkward problems and by the checker.
What does not compile, and what leaves the machine code of the emulated build as it was, is no mistake and not counted.

`--out FILE` keeps a line each; the same command again goes on from there. `--seconds` ends the run in time.
`--report` prints the table of what FILE holds. Exit code 1 when fewer than 98 % of those counted are noticed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mutation.cases import CASES, case_of, families
from benchmarks.mutation.judge import judge
from benchmarks.mutation.report import ENOUGH, explanation_of, report, share_of
from benchmarks.mutation.sites import Site, name_of, place_of, plant, sites_of


@dataclass(frozen=True)
class Mutant:
    """A mistake: the family's case it is planted in, and where."""

    family: str
    case: int
    site: Site

    @property
    def name(self) -> str:
        return name_of(self.family, self.case, self.site)


def main() -> int:
    """Run it; the share decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="mistakes that are counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("dist/mutants.jsonl"))
    parser.add_argument("--kinds", default="", help="some kinds of mistakes alone, comma-separated")
    parser.add_argument(
        "--again", action="store_true", help="judge those of FILE that survived once more, and no others"
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--report", action="store_true", help="no run, only the report of FILE")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="such as backward/unfused; all by default")
    arguments = parser.parse_args()
    done = read(arguments.out)
    if not arguments.report:
        run(arguments, done)
        done = read(arguments.out)
    print(json.dumps(report(done).to_json(), indent=1) if arguments.json else report(done))
    return 0 if share_of(done) >= ENOUGH else 1


def run(arguments: argparse.Namespace, done: dict[str, dict[str, Any]]) -> None:
    """Judge mutants until enough are counted or the time is over; each is written as it is done."""
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + arguments.seconds
    kinds = {kind for kind in arguments.kinds.split(",") if kind}
    waiting = draw(arguments.seed, arguments.families or list(families()), kinds)
    if arguments.again:
        survived = {
            name
            for name, record in done.items()
            if record["stage"] in ("", "broken") and not record.get("again") and not explanation_of(record)
        }
        waiting = (mutant for mutant in _all(arguments.families or list(families())) if mutant.name in survived)
        arguments.count = len(done) + 1
        done = {name: record for name, record in done.items() if name not in survived}
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as scratch,
        ProcessPoolExecutor(arguments.jobs) as pool,
        arguments.out.open("a", encoding="utf-8") as file,
    ):
        running: dict[Future[dict[str, Any]], Mutant] = {}
        while counted(done) + len(running) < arguments.count or running:
            while len(running) < arguments.jobs and time.monotonic() < deadline:
                mutant = next((m for m in waiting if m.name not in done), None)
                if mutant is None or counted(done) + len(running) >= arguments.count:
                    break
                running[pool.submit(evaluate, mutant, Path(scratch))] = mutant
            if not running:
                break
            future = next(as_completed(running))
            del running[future]
            record = {**future.result(), "again": arguments.again}
            done[record["name"]] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
            outcome = f"{record['stage'] or 'SURVIVED':12} {record['family']:28} {record['kind']:16}"
            print(f"{outcome} {record['change'][:110]}", flush=True)


def draw(seed: int, names: list[str], kinds: set[str]) -> Iterator[Mutant]:
    """Mutants for ever, or as long as there are any: a family after the other, in each a kind after the other."""
    streams = [_of_family(seed, name, kinds) for name in names]
    while streams:
        for stream in list(streams):
            mutant = next(stream, None)
            if mutant is None:
                streams.remove(stream)
            else:
                yield mutant


def _all(names: list[str]) -> Iterator[Mutant]:
    for name in names:
        for number in range(CASES):
            yield from (Mutant(name, number, site) for site in sites_of(case_of(name, number).render()))


def _of_family(seed: int, family: str, kinds: set[str]) -> Iterator[Mutant]:
    random = np.random.default_rng([seed, *family.encode()])
    places: dict[str, list[Mutant]] = defaultdict(list)
    for number in range(CASES):
        for site in sites_of(case_of(family, number).render()):
            if not kinds or site.planted.kind in kinds:
                places[site.planted.kind].append(Mutant(family, number, site))
    queues = {kind: _mixed([found[i] for i in random.permutation(len(found))]) for kind, found in places.items()}
    order = [list(queues)[i] for i in random.permutation(len(queues))]
    while any(queues.values()):
        for kind in order:
            if queues[kind]:
                yield queues[kind].pop(0)


def _mixed(mutants: list[Mutant]) -> list[Mutant]:
    """Two in the family's own file, then one in a header, as long as there are any."""
    own = [m for m in mutants if "/" not in m.site.file]
    shared = [m for m in mutants if "/" in m.site.file]
    mixed = []
    while own or shared:
        mixed += own[:2] + shared[:1]
        own, shared = own[2:], shared[1:]
    return mixed


def evaluate(mutant: Mutant, scratch: Path) -> dict[str, Any]:
    """Judge one; what is recorded of it."""
    case = case_of(mutant.family, mutant.case)
    source = case.render()
    _, change = plant(source, mutant.site)
    verdict = judge(case, lambda source: plant(source, mutant.site)[0], scratch)
    rule = mutant.site.planted
    return {
        "name": mutant.name, "family": mutant.family, "case": mutant.case, "problem": case.problem.key,
        "config": dict(case.config), "kind": rule.kind, "rule": rule.name, "change": change,
        "place": place_of(mutant.family, source, mutant.site), **asdict(verdict),
    }  # fmt: skip


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The records of a file, by name; a line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found[record["name"]] = record
    return found


def counted(done: dict[str, dict[str, Any]]) -> int:
    """Mistakes that are some, those left out that are known to compute the same."""
    return report(done).total.counted


if __name__ == "__main__":
    sys.exit(main())
