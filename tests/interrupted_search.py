"""A search to be killed: `python -m tests.interrupted_search DATABASE LOG TRIALS SECONDS_A_CANDIDATE [GO]`.

Writes each candidate it evaluates to LOG and, at the end, why it stopped and the winner's X to stdout. With `inf`
seconds the first candidate is never done; LOG.begun then says that it has begun, LOG.interrupted that an interrupt was
taken and did not end the search. GO is a file that is waited for once everything is ready, as LOG.ready-PID says.
"""

import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.store import open_store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families
from autotune.tuning.search_options import Options
from autotune.tuning.session import Session
from tests.search_doubles import IDENTITY, PROBLEM, FunctionEvaluator, family, took

Handler = Callable[[int, FrameType | None], object]


def main() -> None:
    database, log, trials, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])

    def measure(candidate: Candidate) -> Measurement:
        if math.isinf(seconds):
            never_end(log)
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
        for go in map(Path, sys.argv[5:]):
            Path(f"{log}.ready-{os.getpid()}").touch()
            while not go.exists():
                time.sleep(0.01)
        findings = session.run()
    winner = findings.ranked[0].candidate.config["X"] if findings.ranked else None
    sys.stdout.write(f"{findings.engine.stopped} {findings.resumed} {winner}\n")


def never_end(log: Path) -> None:
    """Until an exception. The search's own handler of SIGINT is asked first."""
    handle = cast(Handler, signal.getsignal(signal.SIGINT))

    def taken(number: int, frame: FrameType | None) -> None:
        handle(number, frame)
        Path(f"{log}.interrupted").touch()

    signal.signal(signal.SIGINT, taken)
    Path(f"{log}.begun").touch()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
