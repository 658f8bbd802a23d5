"""One search from beginning to end: open the device, go on from what the database holds, search, name the winner."""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from autotune.compilers.cache import BuildCache
from autotune.core.candidate import Candidate
from autotune.core.errors import DeviceRefused, UsageError
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.client import WorkerClient
from autotune.devices.factory import DeviceOpener
from autotune.devices.messages import Opened
from autotune.ops.registry import get_op
from autotune.store import Store
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.choose import Subject, choose_families, require_some
from autotune.tuning.evaluation import Task
from autotune.tuning.evaluator import Evaluator
from autotune.tuning.events import Listener, Phase, Progress, silent
from autotune.tuning.examination import Examiner, nothing_expected, nothing_wrong
from autotune.tuning.finalists import FINALISTS, first_right, hold_final
from autotune.tuning.history import Records
from autotune.tuning.interrupt import interruptible
from autotune.tuning.joint_space import Families
from autotune.tuning.ledger import Entry, Ledger
from autotune.tuning.loop import Engine
from autotune.tuning.metered_final import MeteredFinal
from autotune.tuning.neighbours import neighbours
from autotune.tuning.objective import LEAST_S, MOST_S, PLAIN, Demand
from autotune.tuning.pipeline import Pipeline
from autotune.tuning.quick import likely
from autotune.tuning.result import SearchResult
from autotune.tuning.samplers import make_strategy, require_sampler
from autotune.tuning.summary import Findings, summarise

STARTUP = 10
"""Valid candidates (defaults, then random ones) that a learning sampler is given before it is asked."""

CANDIDATE_LIMIT_S = 20.0

_TURN_S = 0.3

_SPARE_CORES = 8
"""With so many builds at a time two more do not slow the search down."""

_LARGEST = 2**32 - 1  # seed that NumPy and Optuna take


@dataclass(frozen=True)
class Options:
    """How to search. None takes the device's default: on the emulator 40 trials or 150 s, on a GPU 100 trials.

    `final`: whether the fastest are timed once more before one is named the winner. `spills`: whether the winner may
    be a kernel whose registers spill into memory. `quick`: only the few candidates that are likely to be good, those
    of earlier runs not among them, whatever `trials` is. `demand`: what is minimised, and within which error.
    """

    trials: int | None = None
    timeout_s: float | None = None
    sampler: str = "parzen"
    seed: int = 0
    jobs: int | None = None
    limit_s: float = CANDIDATE_LIMIT_S
    final: bool = True
    spills: bool = True
    quick: bool = False
    demand: Demand = PLAIN

    def checked(self) -> "Options":
        """These options.

        Raises:
            UsageError: an unknown sampler, or a number below what makes sense.
        """
        require_sampler(self.sampler)
        for name, value, least in (("trials", self.trials, 1), ("jobs", self.jobs, 1), ("seed", self.seed, 0)):
            if value is not None and not least <= value <= _LARGEST:
                raise UsageError(f"{name}={value} must be at least {least} and at most {_LARGEST}")
        if self.quick and self.trials is not None:
            raise UsageError(f"--quick chooses its few candidates itself: leave out --trials {self.trials}, or --quick")
        if self.timeout_s is not None and not 0 < self.timeout_s < math.inf:
            raise UsageError(f"timeout={self.timeout_s} must be more than 0 seconds, and finite")
        error, seconds = self.demand.max_error, self.demand.energy_s
        if error is not None and not 0 < error < math.inf:
            raise UsageError(f"max_error={error} must be more than 0: the part of the error bound that may be used")
        if not LEAST_S <= seconds <= MOST_S:
            raise UsageError(f"energy_seconds={seconds} must be {LEAST_S} to {MOST_S}: counters of energy are slow")
        return self

    def budget(self, opener: DeviceOpener) -> Budget:
        """Trials and time; a grid is walked to its end unless told otherwise."""
        if self.sampler == "grid" or self.trials is not None or self.timeout_s is not None:
            return Budget(self.trials, self.timeout_s)
        return Budget(40, 150.0) if opener.estimates else Budget(100, None)


@dataclass
class Session:
    """A search about to run."""

    families: Families
    records: Records
    evaluator: Evaluator
    clock: Clock
    options: Options
    estimated: bool
    listener: Listener = silent
    ledger: Ledger = field(default_factory=Ledger)
    examine: Callable[[Candidate], str] = nothing_wrong
    expect: Callable[[Candidate], None] = nothing_expected
    """Told of each new leader, which is likely to be examined."""
    only: Sequence[Candidate] | None = None
    """Evaluate these, as far as they are unknown, and no others."""

    def run(self) -> Findings:
        """Search, then hold the final and name the winner.

        Raises:
            NoFeasibleConfiguration: every configuration is ruled out by constraints or limits of the device.
        """
        for family in self.families.empty:
            self._rule_out(family.candidate(family.defaults), family.space.why_not(family.defaults) or "")
        require_some(self.families)
        engine = self._engine()
        resumed = self.ledger.trials
        leader = self.ledger.best
        with interruptible(engine):
            for _ in engine.steps():
                if self.ledger.best is not None and self.ledger.best is not leader:
                    leader = self.ledger.best
                    self.expect(leader.candidate)
                self._report(engine, _phase(engine))
            ranked = self._rank(engine)
        self._report(engine, "done")
        return Findings(ranked, self.ledger, engine, resumed)

    def _engine(self) -> Engine:
        options, families = self.options, self.families
        if self.only is not None:
            return self._engine_of(self.only)
        learns, seeds = options.sampler not in {"grid", "random"}, count(options.seed)
        return Engine(
            families, self.ledger, self.records, self.evaluator, self.clock, np.random.default_rng(options.seed),
            lambda seen: make_strategy(options.sampler, families, seen, next(seeds) % _LARGEST),
            first=self._first() if learns else (), startup=STARTUP if learns else 0, demand=options.demand,
        )  # fmt: skip

    def _engine_of(self, only: Sequence[Candidate]) -> Engine:
        engine = Engine(
            self.families, self.ledger, self.records, self.evaluator, self.clock,
            np.random.default_rng(self.options.seed),
            lambda seen: make_strategy("random", self.families, seen, self.options.seed), first=only,
            demand=self.options.demand,
        )  # fmt: skip
        unknown = sum(not engine.seen(candidate) for candidate in only)
        self.clock.budget = replace(self.clock.budget, trials=self.ledger.trials + unknown)
        return engine

    def _first(self) -> tuple[Candidate, ...]:
        """The starts of each family, its default, and what won nearby."""
        exact = get_op(self.records.problem.op).exact_fields
        return (*self.families.starts(), *neighbours(self.records, self.families, exact))

    def _rule_out(self, candidate: Candidate, why: str) -> None:
        measurement = Measurement(Outcome.INFEASIBLE, why)
        self.ledger.add(Entry(candidate, measurement, "", self.records.write(candidate, "", measurement)))

    def _rank(self, engine: Engine) -> list[Entry]:
        """The winner first, then the other finalists by their new times, then all others by their trials."""
        ranked = self.ledger.ranked(spills=self.options.spills)
        if not ranked:
            return []
        if self.options.demand.objective.metered:
            with self._turn(engine):
                self._report(engine, "finalists")
                objective = self.options.demand.objective
                last = MeteredFinal(
                    objective, self.ledger, self.records, self.evaluator, hurry=engine.stop, new=engine.learned > 0
                )
                return last.held(ranked, self._examined(engine), spills=self.options.spills)
        if self.estimated or not self.options.final:  # an estimate is the same every time: there is nothing to play off
            return self._crown(ranked, engine)
        with self._turn(engine):
            record = self.records.standing("measured")
            standing = None if record is None else record.candidate
            if standing in {entry.candidate for entry in ranked} and (not engine.learned or self._settled(ranked)):
                return sorted(ranked, key=lambda entry: entry.candidate != standing)
            self._report(engine, "finalists")
            final = hold_final(ranked, standing, self.records, self.evaluator)
            if final:
                final = self._crown(final, engine)
        played = {entry.candidate for entry in final}
        ranked = self.ledger.ranked(spills=self.options.spills)  # without those that were found to be wrong
        return final + [entry for entry in ranked if entry.candidate not in played]

    @contextmanager
    def _turn(self, engine: Engine) -> Iterator[None]:
        """One worker names the winner at a time. Who interrupts a search waits for nobody."""
        try:
            while not engine.stop and not self.records.claim_naming():
                self._report(engine, "waiting")
                time.sleep(_TURN_S)
            yield
        finally:
            self.records.release()

    def _examined(self, engine: Engine) -> Callable[[Candidate], str]:
        """The examination, which nobody waits for who interrupts a search."""

        def examine(candidate: Candidate) -> str:
            if engine.stop:
                return ""
            self._report(engine, "examining")
            return self.examine(candidate)

        return examine

    def _settled(self, ranked: list[Entry]) -> bool:
        """Whether another worker has held the final over all that is known."""
        newest = max(entry.record_id for entry in self.ledger.trial_entries())
        return {entry.candidate for entry in ranked[:FINALISTS]} <= self.records.finalists(newest)

    def _crown(self, ranked: list[Entry], engine: Engine) -> list[Entry]:
        """Names the first that passes its examination the winner; those before it drop out.

        Who interrupts a search waits for no examination, and what has won before has passed it.
        """
        standing = self.records.standing("estimated" if self.estimated else "measured")
        if not engine.stop and (engine.learned or standing is None or standing.candidate != ranked[0].candidate):
            self._report(engine, "examining")
            ranked = first_right(ranked, self.examine, self.records, self.ledger)
        if ranked:
            self.records.name_winner(ranked[0].record_id, spills=self.options.spills)
        return ranked

    def _report(self, engine: Engine, phase: Phase) -> None:
        best = self.ledger.best if self.ledger.best is not None and self.ledger.best.counted else None
        self.listener(
            Progress(
                self.records.problem, self.records.identity.name, self.records.identity.spec.title, phase,
                self.ledger.trials, engine.new, self.clock.budget.trials, self.clock.elapsed,
                self.clock.budget.timeout_s, dict(self.ledger.outcomes),
                None if best is None else best.ms, None if best is None else best.candidate,
                self.evaluator.load(), self.estimated,
            )
        )  # fmt: skip


def _phase(engine: Engine) -> Phase:
    if engine.waiting:
        return "waiting"
    return "searching" if engine.stopped is None else "finishing"


def search_one(
    subject: Subject, problem: Problem, opener: DeviceOpener, options: Options, store: Store, listener: Listener
) -> SearchResult:
    """Search for one problem on one device, going on from what the database holds.

    Raises:
        NoFeasibleConfiguration: every configuration is ruled out before anything is built.
        DeviceMissing: the device cannot be opened.
        AutotuneError: the machinery failed: compiler, database, worker, a template that does not render.
    """
    clock = Clock(options.budget(opener))
    with closing(WorkerClient(opener)) as client:
        return search_with(client, clock, subject, problem, options, store, listener)


def search_with(
    client: WorkerClient, clock: Clock, subject: Subject, problem: Problem, options: Options, store: Store,
    listener: Listener,
) -> SearchResult:  # fmt: skip
    """`search_one` with a worker that exists; it is closed at the end. Raises as `search_one`."""
    opened = client.start()
    if options.demand.objective.metered and opened.no_energy:
        raise DeviceRefused(
            f"{opened.identity.spec.title} has no energy to measure: {opened.no_energy}; search with --objective time"
        )
    families = choose_families(subject.templates, problem, opened.identity.spec)
    records = _begin(subject, problem, opened, options, store)
    task = Task(
        subject.op, subject.source, problem, {template.name: template for template in subject.templates},
        opened.identity, opened.environment, options.seed, options.limit_s,
    )  # fmt: skip
    cache, builds = BuildCache(), options.jobs or os.cpu_count() or 1
    with (
        closing(Pipeline(task, client, cache, options.jobs, options.demand)) as pipeline,
        closing(Examiner(task, cache)) as examiner,
    ):
        session = Session(
            families, records, pipeline, clock, options, task.emulated, listener, examine=examiner.complaint,
            expect=examiner.expect if not task.emulated and builds >= _SPARE_CORES else nothing_expected,
            only=likely(subject.templates, families, records) if options.quick else None,
        )  # fmt: skip
        findings = session.run()
        _end(records, findings)
        result = summarise(findings, task, families, clock, pipeline.load(), store.location, options.demand)
        return replace(result, unexamined="interrupted" if findings.engine.stop else examiner.skipped)


def _begin(subject: Subject, problem: Problem, opened: Opened, options: Options, store: Store) -> Records:
    versions = {template.name: template.hash for template in subject.templates}
    named: dict[str, Any] = {"templates": versions, "sampler": options.sampler, "seed": options.seed}
    if subject.label:
        named["part"] = subject.label
    demand = options.demand
    if demand.objective.metered:
        named |= {"objective": demand.objective.name, "energy_seconds": demand.energy_s}
    if demand.max_error is not None:
        named["max_error"] = demand.max_error
    limits = {"trials": options.trials, "timeout": options.timeout_s}
    search = store.start_search(opened.identity, problem, named, limits)
    return Records(store, opened.identity, problem, search.id, opened.environment.get("driver"))


def _end(records: Records, findings: Findings) -> None:
    if records.search_id is not None:
        interrupted = findings.engine.stopped == "interrupted"
        records.store.end_search(records.search_id, "interrupted" if interrupted else "finished")
