"""The search loop: ask, have evaluated, record, tell."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Literal

import numpy as np

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.store.records import StoredMeasurement
from autotune.tuning.budget import Clock
from autotune.tuning.evaluator import Evaluator, Finished
from autotune.tuning.history import Log
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.ledger import Entry, Ledger, sane
from autotune.tuning.strategy import Proposal, Strategy

Stopped = Literal["trials", "timeout", "exhausted", "interrupted"]

PATIENCE = 8
"""Asks in a row that may be invalid or known before a random unseen candidate is taken."""

_TICK_S = 0.5


@dataclass
class Engine:
    """One search over one space. `stop` may be set from a signal handler or another thread.

    `first`: candidates to begin with; then random ones until there are `startup` trials; then the strategy is asked.
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
    stop: bool = False
    asked: int = 0
    duplicates: int = 0
    new: int = 0
    stopped: Stopped | None = None
    _open: dict[Candidate, list[Proposal]] = field(default_factory=dict)  # ours, under way
    _elsewhere: dict[Candidate, list[Proposal]] = field(default_factory=dict)  # another process is at it
    _strategy: Strategy = field(init=False)

    def __post_init__(self, make_strategy: Callable[[Seen], Strategy]) -> None:
        self._strategy = make_strategy(self.seen)
        self._first = deque(self.first)
        self.follow()

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
                self.records.keep_alive()
                yield
        finally:
            self.evaluator.drop()
            self.records.release()

    def follow(self) -> None:
        """Take in what has been recorded since the last call, by this process or another one."""
        for record in self.records.news():
            if self.families.has(record.candidate) and self.ledger.get(record.candidate) is None:
                self._learn(_entry(record))

    def _finished(self) -> bool:
        self.stopped = self.stopped or self._why_stop()
        if self.stopped is None:
            return False
        return self.stop or not self._open or self._late()

    def _late(self) -> bool:
        budget = self.clock.budget
        limit = budget.timeout_s
        enough = self.ledger.trials >= budget.least
        return limit is not None and enough and self.clock.elapsed > limit + budget.grace_s

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
            proposal = self._next()
            if proposal is None:
                # What is still under way may turn out not to count; nothing more can be asked in any case.
                self.stopped = "exhausted"
            else:
                self._begin(proposal)

    def _room(self) -> int:
        budget = self.clock.budget
        limit = budget.least if self.clock.expired else budget.trials
        left = self.evaluator.capacity if limit is None else limit - self.ledger.trials
        return min(self.evaluator.capacity, left)

    def _next(self) -> Proposal | None:
        """A proposal for a valid candidate that nobody has evaluated or is evaluating."""
        while self._first:
            candidate = self._first.popleft()
            if not self.seen(candidate):
                return self._strategy.propose(candidate)
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
            self._strategy.tell(proposal, entry.value)
            return True
        for waiting in (self._open, self._elsewhere):
            if candidate in waiting:
                self.duplicates += 1
                waiting[candidate].append(proposal)
                return True
        why = self.families.why_not(candidate)
        if why is not None:
            self._rule_out(proposal, why)
        return why is not None

    def _rule_out(self, proposal: Proposal, why: str) -> None:
        measurement = Measurement(Outcome.INFEASIBLE, why)
        record_id = self.records.write(proposal.candidate, "", measurement)
        self.ledger.add(Entry(proposal.candidate, measurement, "", record_id))
        self._strategy.tell(proposal, None)

    def seen(self, candidate: Candidate) -> bool:
        """Whether a candidate is known or under way, here or elsewhere."""
        return candidate in self._open or candidate in self._elsewhere or self.ledger.get(candidate) is not None

    def _begin(self, proposal: Proposal) -> None:
        answer = self.records.claim(proposal.candidate)
        if answer.granted:
            self._open[proposal.candidate] = [proposal]
            self.evaluator.submit(proposal.candidate)
            return
        self._elsewhere[proposal.candidate] = [proposal]
        if answer.state == "measured":
            self.follow()

    def _finish(self, finished: Finished) -> None:
        measurement = sane(finished.measurement)
        record_id = self.records.write(finished.candidate, finished.source_hash, measurement)
        self.new += 1
        self._learn(Entry(finished.candidate, measurement, finished.source_hash, record_id))

    def _learn(self, entry: Entry) -> None:
        self.ledger.add(entry)
        proposals = self._open.pop(entry.candidate, []) + self._elsewhere.pop(entry.candidate, [])
        for proposal in proposals:
            self._strategy.tell(proposal, entry.value)
        if not proposals:
            self._strategy.add(entry.candidate, entry.value)
        if self.ledger.best is not None and self.ledger.best.counted:
            self.evaluator.note_best(self.ledger.best.ms)


def _entry(record: StoredMeasurement) -> Entry:
    return Entry(record.candidate, sane(record.measurement), record.source_hash, record.id)
