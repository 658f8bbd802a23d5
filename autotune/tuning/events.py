"""What a search says while it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.core.candidate import Candidate
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.tuning.evaluator import Load

Phase = Literal["searching", "waiting", "finishing", "finalists", "examining", "done"]
"""`waiting`: for other workers of the same search, which are at the rest of it."""


@dataclass(frozen=True)
class Progress:
    """A search at one moment. Times in seconds.

    `new` counts the trials of this run; `best_ms` is an estimate where `estimated`.
    """

    problem: Problem
    device: str
    title: str
    phase: Phase
    trials: int
    new: int
    trials_limit: int | None
    elapsed: float
    timeout: float | None
    outcomes: Mapping[Outcome, int]
    best_ms: float | None
    best: Candidate | None
    load: Load
    estimated: bool


Listener = Callable[[Progress], None]
"""Called after every finished candidate and about twice a second between."""


def silent(progress: Progress) -> None:
    """A listener that says nothing."""
