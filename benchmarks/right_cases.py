"""Right kernels, none of which may be rejected: `python -m benchmarks.right_cases [--count 300]`.

Every family in several configurations, dtypes, layouts and masks: each is verified as a search does and examined as a
winner is, and so on with other configurations until enough runs over a problem were made. `--out FILE` keeps a line
each; the same command again goes on from there. `--seconds` ends the run in time. Exit code 1 on a false alarm.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.mutants import read
from benchmarks.mutation.cases import Case, case_of, families
from benchmarks.mutation.judge import judge

ROUNDS = 100


def main() -> int:
    """Run it; a false alarm decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="runs over a problem: of each case one and its others")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("dist/right_cases.jsonl"))
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="such as backward/unfused; all by default")
    arguments = parser.parse_args()
    done, deadline = read(arguments.out), time.monotonic() + arguments.seconds
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="right-") as scratch, arguments.out.open("a", encoding="utf-8") as file:
        for case in _cases(arguments.families or list(families())):
            runs = sum(record["runs"] for record in done.values())
            if runs >= arguments.count or time.monotonic() > deadline:
                break
            name = f"{case.family} {case.number}"
            if name in done:
                continue
            verdict = judge(case, lambda source: source, Path(scratch), compare=False)
            record = {
                "name": name, "problem": case.problem.key, "config": dict(case.config),
                "runs": 1 + len(case.second_problems()), **asdict(verdict),
            }  # fmt: skip
            done[name] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{name:30} {verdict.stage or 'right':12} {verdict.seconds:5.1f} s {verdict.message}", flush=True)
    alarms = [record for record in done.values() if record["stage"]]
    runs = sum(record["runs"] for record in done.values())
    print(f"{len(done)} cases, {runs} problems, {len(alarms)} false alarms")
    return 1 if alarms else 0


def _cases(names: list[str]) -> Iterator[Case]:
    """Each family's first case, then each one's second, and so on."""
    for number in range(ROUNDS):
        for name in names:
            yield case_of(name, number)


if __name__ == "__main__":
    sys.exit(main())
