"""One search from beginning to end: open the device, go on from what the database holds, search, name the winner."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.errors import DeviceRefused, StoreError
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.client import WorkerClient
from autotune.devices.factory import DeviceOpener
from autotune.devices.messages import Opened
from autotune.ops.registry import get_op
from autotune.store import Store
from autotune.store.records import Owner, SearchState, StoredMeasurement
from autotune.tuning.beginning import Begun, begin, begin_with
from autotune.tuning.budget import Budget, Clock
from autotune.tuning.choose import Subject, choose_families, require_some
from autotune.tuning.evaluator import Evaluator
from autotune.tuning.events import Listener, Phase, Progress, silent
from autotune.tuning.examination import Examiner, nothing_expected, nothing_wrong
from autotune.tuning.finalists import FINAL_S, FINALISTS, finalists_of, first_right, hold_final
from autotune.tuning.history import Records
from autotune.tuning.interrupt import interruptible
from autotune.tuning.joint_space import Families
from autotune.tuning.ledger import Entry, Ledger
from autotune.tuning.loop import Engine
from autotune.tuning.metered_final import MeteredFinal
from autotune.tuning.neighbours import neighbours
from autotune.tuning.quick import likely
from autotune.tuning.result import SearchResult
from autotune.tuning.samplers import make_strategy
from autotune.tuning.search_options import LARGEST_SEED, Options
from autotune.tuning.summary import Findings, summarise
from autotune.tuning.timeline import Timeline

STARTUP = 10
"""Valid candidates (defaults, then random ones) that a learning sampler is given before it is asked."""

_TURN_S = 0.3


_SPARE_CORES = 8
"""With so many builds at a time two more do not slow the search down, nor do a few more at its end."""


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
    expect: Callable[[Sequence[Candidate]], None] = nothing_expected
    """Told of who is likely to be examined: who leads in the second half; at the end, all who will play the final."""
    only: Sequence[Candidate] | None = None
    """Evaluate these, as far as they are unknown, and no others."""
    timeline: Timeline = field(default_factory=lambda: Timeline(time.monotonic()))
    unplayed: int = 0
    """Finalists that were not timed once more, since that would have taken too long after the time."""

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
        told = [entry.candidate for entry in filter(None, [self.ledger.best])]
        with interruptible(engine):
            for _ in engine.steps():
                likely_now = self._likely_to_win(engine)
                if likely_now and likely_now != told:
                    told = likely_now
                    self.expect(told)
                self._report(engine, _phase(engine))
            self.timeline.mark("searched")
            ranked = self._rank(engine)
        self._report(engine, "done")
        return Findings(ranked, self.ledger, engine, resumed, self.unplayed)

    def _likely_to_win(self, engine: Engine) -> list[Candidate]:
        """Nobody until half of the trials are made: leaders change often, and builds for them are in vain.

        Then the leader; once nothing more is asked and half of the cores have nothing to build, all finalists.
        """
        trials, best = self.clock.budget.trials, self.ledger.best
        if best is None or (trials is not None and 2 * self.ledger.trials < trials):
            return []
        if self.options.final and engine.all_asked:
            load = self.evaluator.load()
            if 2 * (load.building + load.queued) <= self.options.builds:
                return [entry.candidate for entry in self.ledger.ranked(spills=self.options.spills)[:FINALISTS]]
        return [best.candidate]

    def _engine(self) -> Engine:
        options, families = self.options, self.families
        if self.only is not None:
            return self._engine_of(self.only)
        learns, seeds = options.learns, count(options.seed)
        return Engine(
            families, self.ledger, self.records, self.evaluator, self.clock, np.random.default_rng(options.seed),
            lambda seen: make_strategy(options.sampler, families, seen, next(seeds) % LARGEST_SEED),
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
                    objective,
                    self.ledger,
                    self.records,
                    self.evaluator,
                    hurry=engine.stop,
                    new=engine.learned > 0,
                    late=lambda: self.clock.expired,
                )
                return last.held(ranked, self._examined(engine), spills=self.options.spills)
        if self.estimated or not self.options.final:  # an estimate is the same every time: there is nothing to play off
            return self._crown(ranked, engine)
        with self._turn(engine):
            record = self.records.standing("measured")
            standing = None if record is None else record.candidate
            if standing in {entry.candidate for entry in ranked} and (not engine.learned or self._settled(ranked)):
                ranked = sorted(ranked, key=lambda entry: entry.candidate != standing)
                return ranked if engine.learned else self._stands(ranked, engine, record)
            left = self.clock.left
            finalists, self.unplayed = finalists_of(ranked, standing, None if left is None else max(left, FINAL_S))
            if not finalists:
                return self._crown(ranked, engine)
            self._report(engine, "finalists")
            final = hold_final(finalists, self.records, self.ledger, self.evaluator)
            self.timeline.mark("timed")
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

        Who interrupts a search waits for no examination, and what won in one that came to its end has passed it.
        """
        standing = self.records.standing("estimated" if self.estimated else "measured")
        known = standing is not None and standing.candidate == ranked[0].candidate and self.records.examined(standing)
        if engine.learned or not known:
            ranked = self._first_right(ranked, engine)
        if ranked:
            self.records.name_winner(ranked[0].record_id, spills=self.options.spills)
        return ranked

    def _stands(self, ranked: list[Entry], engine: Engine, standing: StoredMeasurement | None) -> list[Entry]:
        """With the standing winner first, which is examined if that is in doubt, and only then may be another."""
        if standing is None or self.records.examined(standing):
            return ranked
        right = self._first_right(ranked, engine)
        if right and right[0] is not ranked[0]:
            self.records.name_winner(right[0].record_id, spills=self.options.spills)
        return right

    def _first_right(self, ranked: list[Entry], engine: Engine) -> list[Entry]:
        if engine.stop:
            return ranked
        self._report(engine, "examining")
        ranked = first_right(ranked, self.examine, self.records, self.ledger)
        self.timeline.mark("examined")
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
    with closing(begin(subject, problem, opener, options)) as begun:
        return search_begun(begun, options.budget(opener), subject, options, store, listener)


def search_with(
    client: WorkerClient, clock: Clock, subject: Subject, problem: Problem, options: Options, store: Store,
    listener: Listener,
) -> SearchResult:  # fmt: skip
    """`search_one` with a worker that exists; it is closed at the end. Raises as `search_one`."""
    with closing(begin_with(client, subject, problem, options, clock.start)) as begun:
        return search_begun(begun, clock.budget, subject, options, store, listener)


def search_begun(
    begun: Begun, budget: Budget, subject: Subject, options: Options, store: Store, listener: Listener
) -> SearchResult:
    """Search for what has begun, going on from what the database holds. Raises as `search_one`."""
    task, clock = begun.task, Clock(budget, begun.start)
    if options.demand.objective.metered and begun.opened.no_energy:
        raise DeviceRefused(
            f"{task.identity.spec.title} has no energy to measure: {begun.opened.no_energy}; "
            "search with --objective time"
        )
    families = choose_families(subject.templates, task.problem, task.identity.spec)
    records = _begin(subject, task.problem, begun.opened, options, store)
    with _ended(records), closing(Examiner(task, begun.cache, max(2, options.builds // 2))) as examiner:
        session = Session(
            families, records, begun.pipeline, clock, options, task.emulated, listener, examine=examiner.complaint,
            expect=examiner.expect if not task.emulated and options.builds >= _SPARE_CORES else nothing_expected,
            only=likely(subject.templates, families, records) if options.quick else None, timeline=begun.timeline,
        )  # fmt: skip
        findings = session.run()
        _end(records, "interrupted" if findings.engine.stopped == "interrupted" else "finished")
        result = summarise(findings, task, families, clock, begun.pipeline.load(), store.location, options.demand)
        return replace(
            result,
            timeline=begun.timeline.seconds(),
            unexamined="interrupted" if findings.engine.stop else examiner.skipped,
        )


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
    owner = Owner.here()
    search = store.start_search(opened.identity, problem, named, limits, owner)
    driver = opened.environment.get("driver")
    return Records(store, opened.identity, problem, search.id, driver, owner, finished_at=search.finished_at)


@contextmanager
def _ended(records: Records) -> Iterator[None]:
    """Notes at the end that a search was interrupted, unless it ended before: by an exception, which goes on."""
    try:
        yield
    except BaseException:
        with suppress(StoreError):  # what the exception says matters more
            _end(records, "interrupted")
        raise


def _end(records: Records, state: SearchState) -> None:
    if records.search_id is not None:
        records.store.end_search(records.search_id, state, records.owner)
