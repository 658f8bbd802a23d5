"""The search loop: ask, have evaluated, record, tell."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Literal

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.store.records import StoredMeasurement
from autotune.tuning.budget import Clock
from autotune.tuning.evaluator import Evaluator, Finished
from autotune.tuning.guide import Guide
from autotune.tuning.history import Log, Room
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.ledger import Entry, Ledger, sane
from autotune.tuning.objective import PLAIN, Demand
from autotune.tuning.strategy import Proposal, Strategy

Stopped = Literal["trials", "timeout", "exhausted", "interrupted"]

PATIENCE = 8
"""Asks in a row that may be invalid or known before a random unseen candidate is taken."""

SECOND_TRIES = 8
"""How many candidates that crashed or ran out of time are tried once more at the end of a run."""

_TICK_S = 0.5
_WAIT_S = 0.2


@dataclass
class Engine:
    """One search over one space. `stop` may be set from a signal handler or another thread.

    `first`: candidates to begin with; then random ones until there are `startup` trials; then the strategy is asked.
    Any number of engines, in processes on any machines, share a space and a budget through `records`.
    """

    families: Families
    ledger: Ledger
    records: Log
    evaluator: Evaluator
    clock: Clock
    rng: np.random.Generator
    make_strategy: InitVar[Callable[[Seen], Strategy]]
    first: Sequence[Candidate] = ()
    startup: int = 0
    demand: Demand = PLAIN
    stop: bool = False
    asked: int = 0
    duplicates: int = 0
    withdrawn: int = 0  # asked and built, then dropped
    dropped: int = 0  # under way when the time was up, and not done soon after
    new: int = 0  # trials made here
    learned: int = 0  # by whomever, since this engine began
    stopped: Stopped | None = None
    _open: dict[Candidate, list[Proposal]] = field(default_factory=dict)  # ours, under way
    _elsewhere: dict[Candidate, list[Proposal]] = field(default_factory=dict)  # another process is at it
    _wanted: dict[Candidate, list[Proposal]] = field(default_factory=dict)  # chosen; nobody is at it
    _dry: bool = False  # nothing unseen is left
    _second: deque[Candidate] | None = None  # to be tried once more; None until that has begun
    _seconded: set[Candidate] = field(default_factory=set)  # another process tries it once more
    _strategy: Guide = field(init=False)

    def __post_init__(self, make_strategy: Callable[[Seen], Strategy]) -> None:
        objective = self.demand.objective
        self._strategy = Guide(objective, [make_strategy(self.seen) for _ in objective.weights])
        self._first = deque(self.first)
        self.follow()
        self.learned = 0

    def steps(self) -> Iterator[None]:
        """Run the search; yields after every round, so that the caller can show how it stands.

        Raises:
            AutotuneError: the machinery failed. Everything finished until then is recorded.
        """
        try:
            while not self._finished():
                self._fill()
                for finished in self.evaluator.poll(_TICK_S if self._open else 0.0):
                    self._finish(finished)
                self.follow()
                self._reconsider()
                self._look_around()
                if self.waiting:
                    time.sleep(_WAIT_S)
                yield
        finally:
            self.evaluator.drop()
            self.records.release()

    @property
    def waiting(self) -> bool:
        """Whether there is nothing to do until other processes are done with what they are at."""
        if self.stopped is not None:
            return not self._open and not self._second and bool(self._seconded)
        return not self._open and bool(self._elsewhere or self._wanted)

    @property
    def all_asked(self) -> bool:
        """Whether what is under way here is all that will be evaluated, as far as anybody knows."""
        limit = self._limit()
        return self.stopped is not None or (limit is not None and self.ledger.trials + len(self._open) >= limit)

    def follow(self) -> None:
        """Take in what has been recorded since the last call, by this process or another one."""
        for record in self.records.news():
            if self.families.has(record.candidate):
                self._learn(_entry(record))

    def _finished(self) -> bool:
        self.stopped = self.stopped or self._why_stop()
        if self.stopped is None:
            return False
        if self.stop:
            return True
        if self._late():
            self._drop()
            return True
        if self._second is None and not self._open and not self.clock.expired and self.stopped != "timeout":
            self._second = deque(self.ledger.doubtful()[:SECOND_TRIES])
        return not self._open and not self._second and not self._seconded

    def _late(self) -> bool:
        end_s = self.clock.budget.end_s
        enough = self.ledger.trials >= self.clock.budget.least
        return end_s is not None and enough and self.clock.elapsed > end_s

    def _drop(self) -> None:
        """Take note of what was asked for and will not be known: then it is the time that has ended the search."""
        self.dropped = sum(self.ledger.get(candidate) is None for candidate in self._open)
        if self.dropped:
            self.stopped = "timeout"

    def _why_stop(self) -> Stopped | None:
        if self.stop:
            return "interrupted"
        if self.clock.expired and self._room() <= len(self._open):
            return "timeout"
        limit = self.clock.budget.trials
        return "trials" if limit is not None and self.ledger.trials >= limit else None

    def _fill(self) -> None:
        """Ask until enough is under way, never for more than the budget has left."""
        while self.stopped is None and len(self._open) < self._room() and not self.stop:
            wanted = self._next()
            if wanted is None:
                # What others are at may come back to us. What is under way here may turn out not to count, but
                # nothing more can be asked in any case.
                if not self._elsewhere:
                    self.stopped = "exhausted"
                return
            if not self._begin(*wanted):
                return
        while self._second and len(self._open) < self.evaluator.capacity and not self.stop:
            candidate = self._second.popleft()
            known = self.ledger.get(candidate)
            if known is not None and self.clock.has(known.measurement.device_seconds):  # it may take as long again
                self._try_again(candidate)

    def _limit(self) -> int | None:
        budget = self.clock.budget
        return budget.least if self.clock.expired else budget.trials

    def _room(self) -> int:
        limit, capacity = self._limit(), self.evaluator.capacity
        return capacity if limit is None else min(capacity, limit - self.ledger.trials)

    def _next(self) -> tuple[Candidate, list[Proposal]] | None:
        """A valid candidate that nobody has evaluated or is evaluating, with what proposed it."""
        if self._wanted:
            return next(iter(self._wanted.items()))
        proposal = self._propose()
        self._dry = proposal is None
        return None if proposal is None else (proposal.candidate, [proposal])

    def _propose(self) -> Proposal | None:
        while self._first:
            candidate = self._first.popleft()
            if not self.seen(candidate):
                return self._strategy.propose(candidate)
        if self._dry:
            return None
        if self.ledger.trials + len(self._open) < self.startup:
            return self._random()
        for _ in range(PATIENCE):
            proposal = self._strategy.ask()
            if proposal is None:
                return None
            self.asked += 1
            if not self._answered(proposal):
                return proposal
        return self._random()

    def _random(self) -> Proposal | None:
        candidate = self.families.unseen(self.rng, self.seen)
        return None if candidate is None else self._strategy.propose(candidate)

    def _answered(self, proposal: Proposal) -> bool:
        """Whether a proposal needs no evaluation: known, under way, or not valid."""
        candidate = proposal.candidate
        entry = self.ledger.get(candidate)
        if entry is not None:
            self.duplicates += 1
            self._strategy.tell(proposal, entry)
            return True
        for waiting in (self._open, self._elsewhere, self._wanted):
            if candidate in waiting:
                self.duplicates += 1
                waiting[candidate].append(proposal)
                return True
        why = self.families.why_not(candidate)
        if why is not None:
            self._rule_out(proposal, why)
        return why is not None

    def _reconsider(self) -> None:
        """Drop what was built for nothing: more is known by now than when it was asked."""
        if self.stopped is not None:
            return
        for candidate in self.evaluator.reconsider(self._strategy.order):
            self.records.withdraw(candidate)
            for proposal in self._open.pop(candidate):
                self._strategy.withdraw(proposal)
            self.withdrawn += 1

    def _rule_out(self, proposal: Proposal, why: str) -> None:
        measurement = Measurement(Outcome.INFEASIBLE, why)
        record_id = self.records.write(proposal.candidate, "", measurement)
        self.ledger.add(Entry(proposal.candidate, measurement, "", record_id))
        self._strategy.tell(proposal, None)

    def seen(self, candidate: Candidate) -> bool:
        """Whether a candidate is known, under way, here or elsewhere, or about to be."""
        under_way = (self._open, self._elsewhere, self._wanted)
        return self.ledger.get(candidate) is not None or any(candidate in waiting for waiting in under_way)

    def _begin(self, candidate: Candidate, proposals: list[Proposal]) -> bool:
        """Claim a candidate and begin; False where the budget, shared with others, has no room now."""
        self._wanted[candidate] = proposals
        while candidate in self._wanted:  # `follow` takes out what somebody has recorded
            limit = self._limit()
            room = None if limit is None else Room(limit, self.ledger.trials, self._to_come)
            answer = self.records.claim(candidate, room)
            if answer.granted:
                self._open[candidate] = self._wanted.pop(candidate)
                self.evaluator.submit(candidate)
            elif answer.state == "full":
                return False
            else:
                self.follow()
                if answer.state != "behind" and candidate in self._wanted:
                    self._elsewhere[candidate] = self._wanted.pop(candidate)
        return True

    def _to_come(self, candidate: Candidate) -> bool:
        """Whether a claim will be one more trial of this search."""
        return self.families.has(candidate) and self.ledger.get(candidate) is None

    def _try_again(self, candidate: Candidate) -> None:
        """The second try of one that crashed or ran out of time: the machine may have been at fault."""
        answer = self.records.claim(candidate, again=True)
        if answer.granted:
            self._open[candidate] = []
            self.evaluator.submit(candidate)
        elif answer.state == "held":
            self._seconded.add(candidate)

    def _look_around(self) -> None:
        """Take over what others have left: their process is dead, silent for too long, or has given it up."""
        others = self.records.others(waiting=self.waiting)
        if others is None:
            return
        self.follow()  # claims were read before: what is recorded meanwhile is not taken for given up
        left: dict[Candidate, list[Proposal]] = {}
        for candidate, free in others.items():
            if free and candidate in self._elsewhere:
                left[candidate] = self._elsewhere.pop(candidate)
            elif free and self.families.has(candidate) and not self.seen(candidate):
                left[candidate] = [self._strategy.propose(candidate)]
        left |= {c: self._elsewhere.pop(c) for c in list(self._elsewhere) if c not in others}
        self._wanted = left | self._wanted  # before what is new: what is taken over is in the budget already
        for candidate in [c for c in self._seconded if others.get(c, True)]:
            self._seconded.remove(candidate)
            entry = self.ledger.get(candidate)
            if self._second is not None and entry is not None and entry.measurement.doubtful:
                self._second.append(candidate)

    def _finish(self, finished: Finished) -> None:
        measurement, before = sane(finished.measurement), self.ledger.get(finished.candidate)
        if before is not None and before.measurement.doubtful:
            measurement = replace(measurement, attempts=2)
        record_id = self.records.write(finished.candidate, finished.source_hash, measurement)
        self.new += before is None
        self._learn(Entry(finished.candidate, measurement, finished.source_hash, record_id))

    def _learn(self, entry: Entry) -> None:
        known = self.ledger.get(entry.candidate)
        if known is not None and known.record_id == entry.record_id:
            return
        entry = replace(entry, measurement=self.demand.judged(entry.measurement))
        proposals = [
            proposal for waiting in (self._open, self._elsewhere, self._wanted)
            for proposal in waiting.pop(entry.candidate, [])
        ]  # fmt: skip
        for proposal in proposals:
            self._strategy.tell(proposal, entry)
        taken = self.ledger.add(entry)
        self.learned += taken
        if taken and not proposals:
            self._strategy.add(entry)
        if self.ledger.best is not None and self.ledger.best.counted:
            self.evaluator.note_best(self.ledger.best.ms)
        energy = entry.measurement.energy
        if taken and energy is not None and entry.ms < math.inf:
            self.evaluator.note_energy(entry.ms, energy)


def _entry(record: StoredMeasurement) -> Entry:
    return Entry(record.candidate, sane(record.measurement), record.source_hash, record.id)
