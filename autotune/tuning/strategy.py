"""What proposes candidates: the part of a search that `--sampler` chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.core.candidate import Candidate


@dataclass(frozen=True)
class Proposal:
    """An asked candidate, valid or not, and the strategy's own number for it."""

    candidate: Candidate
    number: int


class Strategy(Protocol):
    """Ask, then tell. Values are log(milliseconds), smaller is better; None: no time (not valid, failed)."""

    def ask(self) -> Proposal | None:
        """The next proposal; None when the strategy has nothing more to propose."""

    def propose(self, candidate: Candidate) -> Proposal:
        """A proposal for a candidate that someone else chose."""

    def tell(self, proposal: Proposal, value: float | None) -> None:
        """How a proposal came out. A proposal may stay untold while it is evaluated."""

    def withdraw(self, proposal: Proposal) -> None:
        """A proposal that is given up before it was evaluated: as if it had never been asked."""

    def order(self, candidates: Sequence[Candidate]) -> Sequence[Candidate] | None:
        """Candidates under way, the most promising first by what is known now; None where nobody can say."""

    def add(self, candidate: Candidate, value: float | None) -> None:
        """A result that this strategy did not propose: from the database, or from another process."""
