"""Random valid candidates, families at equal odds, none twice."""

import numpy as np

from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.samplers.walk import Walk
from autotune.tuning.strategy import Proposal, Strategy


class RandomWalk(Walk):
    """Ends when all are seen."""

    def __init__(self, families: Families, seen: Seen, rng: np.random.Generator) -> None:
        super().__init__()
        self._families, self._seen, self._rng = families, seen, rng

    def ask(self) -> Proposal | None:
        candidate = self._families.unseen(self._rng, self._seen)
        return None if candidate is None else self.propose(candidate)


def make(families: Families, seen: Seen, seed: int) -> Strategy:
    """A walk with a generator of its own."""
    return RandomWalk(families, seen, np.random.default_rng(seed))
