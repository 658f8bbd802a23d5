"""The whole valid space once, family by family."""

from autotune.tuning.joint_space import Families, Seen
from autotune.tuning.samplers.walk import Walk
from autotune.tuning.strategy import Proposal, Strategy


class Grid(Walk):
    """Leaves out what is seen already."""

    def __init__(self, families: Families, seen: Seen) -> None:
        super().__init__()
        self._rest, self._seen = families.candidates(), seen

    def ask(self) -> Proposal | None:
        candidate = next((candidate for candidate in self._rest if not self._seen(candidate)), None)
        return None if candidate is None else self.propose(candidate)


def make(families: Families, seen: Seen, seed: int) -> Strategy:  # noqa: ARG001 - nothing is left to chance
    """A walk from the first candidate to the last."""
    return Grid(families, seen)
