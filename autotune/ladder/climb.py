"""Climbs a ladder: one search for each version's own kernel and for each kernel that versions share."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from autotune.core.errors import NoFeasibleConfiguration, ProblemError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.devices.factory import DeviceOpener
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.present import present_gpu
from autotune.ladder.climbed import Climb, Rung, Timed
from autotune.ladder.peers import Ask, Peers, no_peers
from autotune.ladder.shared_worker import SharedWorker
from autotune.ladder.stations import SKIPPED, Station, stations, stations_of, version_problem
from autotune.ladder.versions import SMALL, Ladder, Version
from autotune.ladder.warm import warm
from autotune.ops.registry import get_op
from autotune.store import Store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.choose import choose_families
from autotune.tuning.events import Listener, silent
from autotune.tuning.finalists import FINALISTS
from autotune.tuning.result import SearchResult
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_with

TRIALS_ESTIMATED, TRIALS_MEASURED = 2, 12
"""Candidates a version where none is asked for: on the emulator, on a GPU."""

LEAST_TRIALS = 3
"""Candidates that a version gets even when its share of the time is over."""

SLOW_LIMIT_S = 60.0
"""Seconds that a candidate may take: the first versions take seconds a run, and run several times."""

_GRACE_S = 0.0  # what waits for the device when a share is over does not hold up the next version


def unheard(text: str) -> None:
    """Does nothing with what the climb is at."""


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

    def run(self, ordered: list[tuple[Station, str]]) -> None:
        """Search at every station (given with the name of the first version that needs it)."""
        worker = SharedWorker(self.opener)
        try:
            self.identity = worker.start().identity
            with self._warmed([station for station, _ in ordered]):
                for at, (station, version) in enumerate(ordered):
                    self._visit(worker, station, version, len(ordered) - at)
        except KeyboardInterrupt:  # between two searches, or for the second time during one: show what there is
            if self.identity is None:
                raise
            self.interrupted = True
        finally:
            worker.end()

    def _visit(self, worker: SharedWorker, station: Station, version: str, left: int) -> None:
        """One search; `left` counts it and those after it, which share what is left of the time."""
        if self.interrupted:
            return
        budget = self.options.budget(self.opener)
        if self.deadline is not None:
            seconds = self.deadline - time.monotonic()
            if seconds > 0:
                budget = replace(budget, timeout_s=seconds / left, least=self._least(budget), grace_s=_GRACE_S)
            elif self._known(station):
                budget = replace(budget, trials=1)  # which there is already: nothing is evaluated
            else:
                self.failed[station.key] = "the time was up before it"
                return
        self.announce(f"{version}: {station.part.name}, {station.part.family or 'all families'}")
        self._search(worker, station, budget)

    @staticmethod
    def _least(budget: Budget) -> int:
        return LEAST_TRIALS if budget.trials is None else min(LEAST_TRIALS, budget.trials)

    def _known(self, station: Station) -> bool:
        """Whether the database has a time for it, from an earlier climb; or it is known that there can be none."""
        assert self.identity is not None
        try:
            families = choose_families(station.subject.templates, station.problem, self.identity.spec)
        except NoFeasibleConfiguration:
            return True
        records = self.store.measurements(station.problem, self.identity.name, stage="trial")
        return any(record.measurement.outcome is Outcome.OK and families.has(record.candidate) for record in records)

    def _search(self, worker: SharedWorker, station: Station, budget: Budget) -> None:
        options = replace(self.options, trials=budget.trials, timeout_s=budget.timeout_s)
        clock, subject = Clock(budget), station.subject
        try:
            result = search_with(worker, clock, subject, station.problem, options, self.store, self.listener)
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
    def _warmed(self, ordered: list[Station]) -> Iterator[None]:
        """Begin to build what the searches will ask for first; on the emulator no core is idle meanwhile."""
        spec = None if self.opener.gpu_index is None else present_gpu(self.opener.gpu_index)
        if spec is None:
            yield
            return
        with warm([(station.subject, station.problem) for station in ordered], spec, self.options):
            yield


def ladder_problem(ladder: Ladder, given: dict[str, Value], emulated: bool) -> Problem:
    """The problem to climb: the published one, on the emulator a small one, with the fields given.

    Raises:
        ProblemError: fields that make no problem, or values of another head size than keys.
    """
    problem = get_op(ladder.op).problem(**{**ladder.fields, **(SMALL if emulated else {}), **given})
    if problem["HS_v"] != problem["HS"]:
        raise ProblemError(f"HS_v={problem['HS_v']} with HS={problem['HS']}: a ladder has one head size; give HS alone")
    return problem


def default_options(trials: int | None, seed: int, jobs: int | None, emulated: bool, hurried: bool = False) -> Options:
    """Search options of a climb: `TRIALS_ESTIMATED` or `TRIALS_MEASURED` candidates a version unless told otherwise.

    Fewer than `FINALISTS` hold no final, nor does a climb in a hurry (with a time limit): it would take longer than
    the trials, most of it for the slowest versions.

    Raises:
        UsageError: a number below what makes sense.
    """
    count = trials or (TRIALS_ESTIMATED if emulated else TRIALS_MEASURED)
    final = count >= FINALISTS and not hurried
    return Options(trials=count, seed=seed, jobs=jobs, limit_s=SLOW_LIMIT_S, final=final).checked()


def climb(  # noqa: PLR0913 - what a climb is made of
    ladder: Ladder,
    problem: Problem,
    opener: DeviceOpener,
    options: Options,
    store: Store,
    *,
    listener: Listener = silent,
    announce: Callable[[str], None] = unheard,
    timeout_s: float | None = None,
    ask_peers: Ask = no_peers,
) -> Climb:
    """Tune every version in turn; what the database holds already is not evaluated again.

    `timeout_s` seconds are shared out among the searches that are left, each with at least `LEAST_TRIALS` candidates;
    a version that would begin after them is skipped, unless an earlier climb has a time for it. So is one that cannot
    compute the problem, with the reason. `ask_peers` measures what others need for the same, once all is tuned.

    Raises:
        DeviceMissing: the device cannot be opened.
        AutotuneError: the machinery failed.
    """
    start = time.monotonic()
    ordered = stations(ladder, problem)
    climber = Climber(opener, options, store, listener, announce)
    climber.deadline = None if timeout_s is None else start + timeout_s
    with ask_peers(problem, [station.problem for station, _ in ordered]) as answer:
        climber.run(ordered)
        peers = Peers() if climber.interrupted else answer()
    assert climber.identity is not None
    rungs = tuple(_rung(version, problem, climber) for version in ladder.versions)
    return Climb(
        ladder, problem, climber.identity.spec, opener.estimates, rungs, time.monotonic() - start,
        store.location, climber.interrupted, peers,
    )  # fmt: skip


def _rung(version: Version, asked: Problem, climber: Climber) -> Rung:
    problem = version_problem(version, asked)
    if problem is None:
        return Rung(version, skipped=SKIPPED[version.element])
    timed: list[Timed] = []
    for station in stations_of(version, problem):
        result = climber.found.get(station.key)
        if result is None or result.best is None:
            return Rung(version, skipped=climber.failed.get(station.key, "interrupted before it"))
        timed.append(Timed(station.part, station.problem, result.best, result.trials))
    own, *shared = timed
    return Rung(version, own, tuple(shared))
