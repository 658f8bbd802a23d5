"""Searching a recorded space: nothing is built, run or written. How samplers are compared and tested."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.errors import UsageError
from autotune.core.measurement import Energy, Measurement, Timing, Wrong
from autotune.core.outcome import Outcome
from autotune.devices.recorded import RecordedSpace
from autotune.devices.replay import ReplayDevice
from autotune.store.records import ClaimAnswer, StoredMeasurement
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.evaluator import Finished, Load, Order
from autotune.tuning.history import Room
from autotune.tuning.joint_space import Families, Family
from autotune.tuning.ledger import Entry, Ledger
from autotune.tuning.listed import ListedSpace
from autotune.tuning.loop import Engine
from autotune.tuning.objective import TIME, Demand, Objective
from autotune.tuning.room import KNOWN, Spent, enough_waiting
from autotune.tuning.samplers import make_strategy

BUILD = 15.0
"""A build takes as long as so many measurements: on an H200, 284 s of compiling for 19 s on the device."""


def recorded_family(recording: RecordedSpace) -> Family:
    """A recording as a family: what was recorded, except what broke a restriction, is valid."""
    known = (config for config in recording.configs if recording.lookup(config).outcome is not Outcome.INFEASIBLE)
    return Family(recording.name, "recorded", recording.parameters, {}, ListedSpace(recording.parameters, known))


@dataclass
class Player:
    """Answers candidates from a recording, in the time of a pretended machine.

    `capacity` candidates are under way at a time, each built on a core of its own, which takes `build` times as long as
    the device takes for a measurement. As the pipeline does, it measures the most promising of what is built, and drops
    what the device will not need until more is built; what was dropped is not built again if it is asked for again.
    """

    device: ReplayDevice
    capacity: int = 1
    build: float = 0.0
    now: float = 0.0  # in measurements
    built: int = 0
    _waiting: dict[Candidate, float] = field(default_factory=dict)  # when each is built
    _cached: set[Candidate] = field(default_factory=set)  # built, then dropped

    def submit(self, candidate: Candidate) -> None:
        cached = candidate in self._cached
        self._waiting[candidate] = self.now + (0.0 if cached else self.build)
        self.built += not cached

    def poll(self, timeout_s: float) -> Sequence[Finished]:  # noqa: ARG002 - never waits
        if not self._waiting:
            return []
        ready = self._ready()
        candidate = ready[0] if ready else min(self._waiting, key=self._waiting.__getitem__)
        self.now = max(self.now, self._waiting.pop(candidate)) + 1.0
        return [Finished(candidate, "", self.device.measure(candidate.config))]

    def reconsider(self, order: Order) -> Sequence[Candidate]:
        ready = self._ready()
        ordered = order(ready) if len(ready) > 1 else None
        if ordered is None:
            return []
        left = [at - self.now for at in self._waiting.values() if at > self.now]
        enough = enough_waiting(Spent(KNOWN * self.build, KNOWN), Spent(KNOWN, KNOWN), left)
        kept, gone = ordered[:enough], ordered[enough:]
        self._cached.update(gone)
        rest = {candidate: at for candidate, at in self._waiting.items() if candidate not in ordered}
        self._waiting = {candidate: self._waiting[candidate] for candidate in kept} | rest
        return gone

    def _ready(self) -> list[Candidate]:
        return [candidate for candidate, at in self._waiting.items() if at <= self.now]

    def note_best(self, ms: float) -> None:
        """Recorded times are what they are."""

    def note_energy(self, ms: float, energy: Energy) -> None:
        """Likewise."""

    def load(self) -> Load:
        return Load()

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | Wrong | None]:
        return [self.device.measure(candidate.config).timing for candidate in candidates]

    def meter(self, candidates: Sequence[Candidate], rounds: int) -> Sequence[Energy | None]:  # noqa: ARG002
        return [self.device.measure(candidate.config).energy for candidate in candidates]

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

    def withdraw(self, candidate: Candidate) -> None:
        """It was written nowhere."""

    def write(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:  # noqa: ARG002
        return next(self._ids)

    def others(self, *, waiting: bool) -> None:
        """Nobody else is there."""

    def release(self) -> None:
        """Nobody else is there."""


@dataclass(frozen=True)
class Course:
    """How a search of a recording went: best so far over the optimum after 1, 2, … evaluations.

    `built`: candidates that were built, those included that were dropped; `time`: what all took, in measurements.
    """

    steps: Sequence[float]
    built: int
    time: float


def replay(
    recording: RecordedSpace, *, sampler: str, trials: int, seed: int, capacity: int = 1, build: float = BUILD
) -> Ledger:
    """Search a recording: what is known after `trials` evaluations with this sampler.

    `capacity`: candidates under way at a time, as with parallel builds, each of which takes `build` measurements.
    """
    return _played(recording, sampler, trials, seed, Player(ReplayDevice(recording), capacity, build))


def course(
    recording: RecordedSpace, sampler: str, trials: int, seed: int, in_flight: int = 1, build: float = BUILD,
    objective: Objective = TIME,
) -> Course:  # fmt: skip
    """`replay`, as a curve: infinite while nothing has succeeded; shorter than `trials` where there is no more.

    Raises:
        UsageError: no configuration of the recording succeeded, or none has an energy, or there is no such sampler.
    """
    optimum, best = optimum_of(recording, objective), math.inf
    player = Player(ReplayDevice(recording), in_flight, build)
    steps = []
    for entry in _played(recording, sampler, trials, seed, player, objective).trial_entries():
        best = min(best, entry.ms if not objective.metered else _cost(entry, objective))
        steps.append(best / optimum)
    return Course(steps, player.built, player.now)


def optimum_of(recording: RecordedSpace, objective: Objective) -> float:
    """The least time, energy or product of a recording: milliseconds, millijoules, their product.

    Raises:
        UsageError: no configuration succeeded, or none has an energy; or the objective has no single optimum.
    """
    if not objective.metered:
        return recording.best_ms
    if objective.several:
        raise UsageError(f"objective {objective.name} has no single optimum; replay time, energy or edp")
    known = ((result.median_ms, result.energy_mj) for result in recording.results.values())
    costs = [objective.cost((ms, mj)) for ms, mj in known if ms is not None and mj is not None]
    if not costs:
        raise UsageError(f"the recording {recording.name} tells no energies; replay it with --objective time")
    return min(costs)


def _cost(entry: Entry, objective: Objective) -> float:
    return math.inf if entry.figures is None else objective.cost(entry.figures)


def _played(
    recording: RecordedSpace, sampler: str, trials: int, seed: int, player: Player, objective: Objective = TIME
) -> Ledger:
    families, ledger = Families([recorded_family(recording)]), Ledger()
    engine = Engine(
        families, ledger, Unrecorded(), player, Clock(Budget(trials)), np.random.default_rng(seed),
        lambda seen: make_strategy(sampler, families, seen, seed), startup=10, demand=Demand(objective),
    )  # fmt: skip
    for _ in engine.steps():
        pass
    return ledger
