"""What strategies share that learn nothing: they number proposals and forget results."""

from collections.abc import Sequence

from autotune.core.candidate import Candidate
from autotune.tuning.strategy import Proposal


class Walk:
    """A strategy but for `ask`."""

    def __init__(self) -> None:
        self._asked = 0

    def propose(self, candidate: Candidate) -> Proposal:
        self._asked += 1
        return Proposal(candidate, self._asked)

    def tell(self, proposal: Proposal, value: float | None) -> None:
        """Nothing to learn."""

    def add(self, candidate: Candidate, value: float | None) -> None:
        """Nothing to learn."""

    def withdraw(self, proposal: Proposal) -> None:
        """Nothing to forget."""

    def order(self, candidates: Sequence[Candidate]) -> Sequence[Candidate] | None:  # noqa: ARG002
        """One is as good as another."""
        return None
