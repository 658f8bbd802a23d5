"""What an engine asks: one strategy for each weight of the objectives, by turns; all of them know all trials.

Several objectives are divided into several single ones (as MOEA/D does, Zhang and Li, 2007), so that any sampler
serves: each study has one value, and reads its own trials alone.
"""

from collections.abc import Sequence
from itertools import count

from autotune.core.candidate import Candidate
from autotune.tuning.ledger import Entry
from autotune.tuning.objective import Objective, Scale
from autotune.tuning.strategy import Proposal, Strategy


class Guide:
    """As a `Strategy`, but told entries instead of values."""

    def __init__(self, objective: Objective, strategies: Sequence[Strategy]) -> None:
        self._parts = tuple(zip(strategies, objective.weights, strict=True))
        self._scale = Scale()
        self._numbers = count()
        self._open: dict[int, list[Proposal]] = {}
        self._turn = 0

    def ask(self) -> Proposal | None:
        """The next proposal, of the strategy whose turn it is; the others take it as their own."""
        asked, self._turn = self._turn, (self._turn + 1) % len(self._parts)
        proposal = self._parts[asked][0].ask()
        if proposal is None:
            return None
        return self._shared(proposal.candidate, {asked: proposal})

    def propose(self, candidate: Candidate) -> Proposal:
        """A proposal for a candidate that someone else chose."""
        return self._shared(candidate, {})

    def tell(self, proposal: Proposal, entry: Entry | None) -> None:
        """How a proposal came out; None: it was no valid one."""
        for (strategy, weight), part in zip(self._parts, self._open.pop(proposal.number), strict=True):
            strategy.tell(part, self._value(entry, weight))

    def withdraw(self, proposal: Proposal) -> None:
        """A proposal that is given up before it was evaluated."""
        for (strategy, _), part in zip(self._parts, self._open.pop(proposal.number), strict=True):
            strategy.withdraw(part)

    def order(self, candidates: Sequence[Candidate]) -> Sequence[Candidate] | None:
        """Candidates under way, the most promising first, by the strategy whose turn it is."""
        return self._parts[self._turn][0].order(candidates)

    def add(self, entry: Entry) -> None:
        """A result that nobody here proposed."""
        for strategy, weight in self._parts:
            strategy.add(entry.candidate, self._value(entry, weight))

    def _shared(self, candidate: Candidate, made: dict[int, Proposal]) -> Proposal:
        number = next(self._numbers)
        self._open[number] = [
            made.get(place) or strategy.propose(candidate) for place, (strategy, _) in enumerate(self._parts)
        ]
        return Proposal(candidate, number)

    def _value(self, entry: Entry | None, weight: float) -> float | None:
        return None if entry is None else self._scale.value(entry.value, entry.measurement, weight)
