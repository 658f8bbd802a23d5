"""Strategies that learn nothing: every candidate once in order, or at random."""

import numpy as np

from autotune.core.candidate import Candidate
from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.strategy import Proposal


class _Walk:
    """Numbers proposals and forgets results."""

    def __init__(self) -> None:
        self._asked = 0

    def propose(self, candidate: Candidate) -> Proposal:
        """The candidate with the next number."""
        self._asked += 1
        return Proposal(candidate, self._asked)

    def tell(self, proposal: Proposal, value: float | None) -> None:
        """Nothing to learn."""

    def add(self, candidate: Candidate, value: float | None) -> None:
        """Nothing to learn."""


class Grid(_Walk):
    """The whole valid space once, family by family."""

    def __init__(self, families: Families, seen: Seen) -> None:
        super().__init__()
        self._rest = families.candidates()
        self._seen = seen

    def ask(self) -> Proposal | None:
        """The next unseen candidate; None at the end of the space."""
        candidate = next((candidate for candidate in self._rest if not self._seen(candidate)), None)
        return None if candidate is None else self.propose(candidate)


class RandomWalk(_Walk):
    """Random valid candidates, families at equal odds, none twice."""

    def __init__(self, families: Families, seen: Seen, rng: np.random.Generator) -> None:
        super().__init__()
        self._families = families
        self._seen = seen
        self._rng = rng

    def ask(self) -> Proposal | None:
        """An unseen candidate; None when all are seen."""
        candidate = self._families.unseen(self._rng, self._seen)
        return None if candidate is None else self.propose(candidate)
