"""Climbs a ladder: one search for each version's own kernel and for each kernel that versions share."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autotune.devices.detect import present_gpu
from autotune.devices.identity import DeviceIdentity
from autotune.devices.open import CpuOpener, CudaOpener, DeviceOpener
from autotune.errors import NoFeasibleConfiguration
from autotune.ladder.narrow import narrowed
from autotune.ladder.parts import Part, require_pieces
from autotune.ladder.result import Climb, Rung, Timed
from autotune.ladder.versions import SMALL, Ladder, Version
from autotune.ladder.warm import warm
from autotune.ladder.worker import SharedWorker
from autotune.ops.registry import get_op
from autotune.outcome import Outcome
from autotune.problem import Problem
from autotune.search.budget import Clock
from autotune.search.choose import Subject, choose_families, choose_subject
from autotune.search.events import Listener, silent
from autotune.search.finalists import FINALISTS
from autotune.search.result import SearchResult
from autotune.search.session import Options, search_with
from autotune.store import Store
from autotune.template import find_template
from autotune.values import Value

TRIALS_ESTIMATED, TRIALS_MEASURED = 2, 12
"""Candidates a version where none is asked for: on the emulator, on a GPU."""


SLOW_LIMIT_S = 60.0
"""Seconds that a candidate may take: the first versions take seconds a run, and run several times."""


def unheard(text: str) -> None:
    """Does nothing with what the climb is at."""


@dataclass(frozen=True)
class Station:
    """A search of the climb: one part, for one problem. Versions that need the same one share it."""

    part: Part
    problem: Problem

    @property
    def key(self) -> str:
        """The same for the same search."""
        return f"{self.problem.key} {self.part.family} {sorted(self.part.pins.items())}"

    @property
    def subject(self) -> Subject:
        """The families that compete."""
        if self.part.family is None:
            return choose_subject(self.problem.op)
        subject = choose_subject(self.problem.op, (self.part.family,))
        template = narrowed(find_template(self.problem.op, self.part.family), self.part.pins)
        return Subject(subject.op, subject.source, (template,), self.key)


@dataclass
class Climber:
    """Runs the searches of one ladder in one worker process. After `deadline` (monotonic) no more are begun."""

    opener: DeviceOpener
    options: Options
    store: Store
    listener: Listener = silent
    announce: Callable[[str], None] = unheard
    found: dict[str, SearchResult] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    identity: DeviceIdentity | None = None
    deadline: float | None = None

    def run(self, stations: dict[str, tuple[Station, str]]) -> None:
        """Search at every station (given with the name of the first version that needs it)."""
        worker = SharedWorker(self.opener)
        ordered = _ordered(list(stations.values()))
        try:
            self.identity = worker.start().identity
            with self._warmed([station for station, _ in ordered]):
                for station, version in ordered:
                    self._visit(worker, station, version)
        except KeyboardInterrupt:  # between two searches, or for the second time during one: show what there is
            if self.identity is None:
                raise
            self.interrupted = True
        finally:
            worker.end()

    def _visit(self, worker: SharedWorker, station: Station, version: str) -> None:
        if self.interrupted:
            return
        options = self.options
        if self.deadline is not None and time.monotonic() > self.deadline:
            if not self._known(station):
                self.failed[station.key] = "the time was up before it"
                return
            options = replace(options, trials=1)  # which there is already: nothing is evaluated
        self.announce(f"{version}: {station.part.name}, {station.part.family or 'all families'}")
        self._search(worker, station, options)

    def _known(self, station: Station) -> bool:
        """Whether the database has a time for it, from an earlier climb; or it is known that there can be none."""
        assert self.identity is not None
        try:
            families = choose_families(station.subject.templates, station.problem, self.identity.spec)
        except NoFeasibleConfiguration:
            return True
        records = self.store.measurements(station.problem, self.identity.name, stage="trial")
        return any(record.measurement.outcome is Outcome.OK and families.has(record.candidate) for record in records)

    def _search(self, worker: SharedWorker, station: Station, options: Options) -> None:
        clock = Clock(options.budget(self.opener))
        try:
            result = search_with(worker, clock, station.subject, station.problem, options, self.store, self.listener)
        except NoFeasibleConfiguration as error:
            self.failed[station.key] = str(error)
            return
        self.interrupted = result.stopped == "interrupted"
        if result.best is None:
            first = next(iter(result.messages.values()), "no trial was made")
            self.failed[station.key] = f"no candidate was right and ran: {first}"
        else:
            self.found[station.key] = result

    @contextmanager
    def _warmed(self, stations: list[Station]) -> Iterator[None]:
        """Begin to build what the searches will ask for first; on the emulator no core is idle meanwhile."""
        spec = present_gpu(self.opener.index) if isinstance(self.opener, CudaOpener) else None
        if spec is None:
            yield
            return
        with warm([(station.subject, station.problem) for station in stations], spec, self.options):
            yield


def ladder_problem(ladder: Ladder, given: dict[str, Value], emulated: bool) -> Problem:
    """The problem to climb: the published one, on the emulator a small one, with the fields given.

    Raises:
        ProblemError: fields that make no problem.
        UsageError: fewer key heads than query heads.
    """
    problem = get_op(ladder.op).problem(**{**ladder.fields, **(SMALL if emulated else {}), **given})
    require_pieces(problem)
    return problem


def default_options(trials: int | None, seed: int, jobs: int | None, emulated: bool) -> Options:
    """Search options of a climb: `TRIALS_ESTIMATED` or `TRIALS_MEASURED` candidates a version unless told otherwise.

    Fewer than `FINALISTS` hold no final: it would take longer than the trials, most of it for the slowest versions.

    Raises:
        UsageError: a number below what makes sense.
    """
    count = trials or (TRIALS_ESTIMATED if emulated else TRIALS_MEASURED)
    return Options(trials=count, seed=seed, jobs=jobs, limit_s=SLOW_LIMIT_S, final=count >= FINALISTS).checked()


def climb(
    ladder: Ladder,
    problem: Problem,
    opener: DeviceOpener,
    options: Options,
    store: Store,
    *,
    listener: Listener = silent,
    announce: Callable[[str], None] = unheard,
    timeout_s: float | None = None,
) -> Climb:
    """Tune every version in turn; what the database holds already is not evaluated again.

    A version that cannot compute the problem is skipped, with the reason; so is one that would begin after
    `timeout_s` seconds, unless an earlier climb has a time for it.

    Raises:
        DeviceMissing: the device cannot be opened.
        AutotuneError: the machinery failed.
    """
    start = time.monotonic()
    climber = Climber(opener, options, store, listener, announce)
    climber.deadline = None if timeout_s is None else start + timeout_s
    climber.run(_stations(ladder, problem))
    assert climber.identity is not None
    rungs = tuple(_rung(version, problem, climber) for version in ladder.versions)
    return Climb(
        ladder, problem, climber.identity.spec, isinstance(opener, CpuOpener), rungs, time.monotonic() - start,
        store.location, climber.interrupted,
    )  # fmt: skip


def version_problem(version: Version, asked: Problem) -> Problem | None:
    """The problem in the element type that the version computes in; None where that is not what was asked for."""
    if version.element == "16-bit" and asked.dtype == "fp32":
        return None
    return asked.replace(dtype="fp32") if version.element == "fp32" else asked


def _ordered(stations: list[tuple[Station, str]]) -> list[tuple[Station, str]]:
    """What versions share first, so that a climb that is broken off has whole versions; a problem's after one another,
    because another problem takes new references.
    """
    first: dict[str, tuple[bool, int]] = {}
    for at, (station, _) in enumerate(stations):
        first.setdefault(station.problem.key, (station.part.family is not None, at))
    return sorted(stations, key=lambda item: first[item[0].problem.key])


def _stations(ladder: Ladder, asked: Problem) -> dict[str, tuple[Station, str]]:
    stations: dict[str, tuple[Station, str]] = {}
    for version in ladder.versions:
        problem = version_problem(version, asked)
        if problem is None:
            continue
        for part in (version.own, *version.shared):
            station = Station(part, part.problem(problem))
            stations.setdefault(station.key, (station, version.name))
    return stations


def _rung(version: Version, asked: Problem, climber: Climber) -> Rung:
    problem = version_problem(version, asked)
    if problem is None:
        return Rung(version, skipped="it is about 16-bit elements, and fp32 was asked for")
    timed = []
    for part in (version.own, *version.shared):
        station = Station(part, part.problem(problem))
        result = climber.found.get(station.key)
        if result is None or result.best is None:
            return Rung(version, skipped=climber.failed.get(station.key, "interrupted before it"))
        timed.append(Timed(part, station.problem, result.best, result.trials))
    return Rung(version, timed[0], tuple(timed[1:]))
