"""Searching a recorded space: nothing is built, run or written. How samplers are compared and tested."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement, Timing
from autotune.core.outcome import Outcome
from autotune.devices.recorded import RecordedSpace
from autotune.devices.replay import ReplayDevice
from autotune.store.records import ClaimAnswer, StoredMeasurement
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.evaluator import Finished, Load
from autotune.tuning.history import Room
from autotune.tuning.joint_space import Families, Family
from autotune.tuning.ledger import Ledger
from autotune.tuning.listed import ListedSpace
from autotune.tuning.loop import Engine
from autotune.tuning.samplers import make_strategy


def recorded_family(recording: RecordedSpace) -> Family:
    """A recording as a family: what was recorded, except what broke a restriction, is valid."""
    known = (config for config in recording.configs if recording.lookup(config).outcome is not Outcome.INFEASIBLE)
    return Family(recording.name, "recorded", recording.parameters, {}, ListedSpace(recording.parameters, known))


class Player:
    """Answers candidates from a recording, `capacity` at a time."""

    def __init__(self, device: ReplayDevice, capacity: int = 1) -> None:
        self._device = device
        self.capacity = capacity
        self._waiting: list[Candidate] = []

    def submit(self, candidate: Candidate) -> None:
        self._waiting.append(candidate)

    def poll(self, timeout_s: float) -> Sequence[Finished]:  # noqa: ARG002 - never waits
        if not self._waiting:
            return []
        candidate = self._waiting.pop(0)
        return [Finished(candidate, "", self._device.measure(candidate.config))]

    def note_best(self, ms: float) -> None:
        """Recorded times are what they are."""

    def load(self) -> Load:
        return Load()

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | None]:
        return [self._device.measure(candidate.config).timing for candidate in candidates]

    def drop(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        """Nothing to stop."""


@dataclass
class Unrecorded:
    """In place of a database: every claim is granted, nothing is kept."""

    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def news(self) -> Iterator[StoredMeasurement]:
        """Nothing."""
        return iter(())

    def claim(self, candidate: Candidate, room: Room | None = None, *, again: bool = False) -> ClaimAnswer:  # noqa: ARG002
        return ClaimAnswer("granted")

    def write(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:  # noqa: ARG002
        return next(self._ids)

    def others(self, *, waiting: bool) -> None:
        """Nobody else is there."""

    def release(self) -> None:
        """Nobody else is there."""


def replay(recording: RecordedSpace, *, sampler: str, trials: int, seed: int, capacity: int = 1) -> Ledger:
    """Search a recording: what is known after `trials` evaluations with this sampler.

    `capacity`: candidates under way at a time, as with parallel builds.
    """
    families, ledger = Families([recorded_family(recording)]), Ledger()
    engine = Engine(
        families, ledger, Unrecorded(), Player(ReplayDevice(recording), capacity), Clock(Budget(trials)),
        np.random.default_rng(seed), lambda seen: make_strategy(sampler, families, seen, seed), startup=10,
    )  # fmt: skip
    for _ in engine.steps():
        pass
    return ledger


def course(recording: RecordedSpace, sampler: str, trials: int, seed: int, in_flight: int = 1) -> list[float]:
    """How a search of a recording went: best so far over the optimum after 1, 2, … `trials` evaluations.

    Infinite while nothing has succeeded; shorter than `trials` where the recording has no more.

    Raises:
        UsageError: no configuration of the recording succeeded, or there is no such sampler.
    """
    optimum, best = recording.best_ms, math.inf
    steps = []
    for entry in replay(recording, sampler=sampler, trials=trials, seed=seed, capacity=in_flight).trial_entries():
        best = min(best, entry.ms)
        steps.append(best / optimum)
    return steps
