"""A search to be killed: `python -m tests.interrupted_search DATABASE LOG TRIALS SECONDS_A_CANDIDATE`.

Writes each candidate it evaluates to LOG and, at the end, why it stopped and the winner's X to stdout.
"""

import sys
import time
from pathlib import Path

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.store import open_store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.session import Options, Session
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, family, took


def main() -> None:
    database, log, trials, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])

    def measure(candidate: Candidate) -> Measurement:
        time.sleep(seconds)
        with log.open("a") as file:
            file.write(f"{candidate}\n")
        return known(candidate)

    def known(candidate: Candidate) -> Measurement:
        return took(1.0 + abs(int(candidate.config["X"]) - 70))

    with open_store(database) as store:
        families = Families([family(X=range(100))])
        session = Session(
            families, Records(store, IDENTITY, PROBLEM), FunctionEvaluator(measure, 4, known), Clock(Budget(trials)),
            Options(trials), estimated=False,
        )  # fmt: skip
        findings = session.run()
    winner = findings.ranked[0].candidate.config["X"] if findings.ranked else None
    sys.stdout.write(f"{findings.engine.stopped} {findings.resumed} {winner}\n")


if __name__ == "__main__":
    main()
