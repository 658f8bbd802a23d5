"""Dividing the time of many searches: a group's first row gets most, the others begin with what it found."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.rows import Group, Row

LEAD = 6.0
"""How many times as long as the others a group's first row is searched."""

_LEAST_S = 2.0
_BEYOND_S = 3.0  # what the end of a search and its final take, until it is known better
_RECENT = 8


@dataclass
class Allowance:
    """`total`: seconds for everything; or, where it is None, `seconds` a row, `LEAD` times that for a group's first.

    A row of full precision comes after the search of the same problem among all families, and needs no lead.
    """

    total: float | None
    seconds: float
    start: float = field(default_factory=time.monotonic)
    _beyond: list[float] = field(default_factory=list)  # what searches took in excess of their time

    def share(self, row: Row, rest: Sequence[Row], begun: set[Group]) -> float:
        """Seconds for a row's search. `rest`: rows still to come after it; `begun`: groups that need no lead."""
        mine = 1.0 if row.full_precision or row.group in begun else LEAD
        if self.total is None:
            return self.seconds * mine
        leads = {other.group for other in rest if not other.full_precision} - begun - {row.group}
        shares = mine + len(rest) + (LEAD - 1.0) * len(leads)
        left = self.total - (time.monotonic() - self.start) - self._overhead() * (1 + len(rest))
        return max(_LEAST_S, left * mine / shares)

    @property
    def up(self) -> bool:
        """Whether the whole time is over."""
        return self.total is not None and time.monotonic() - self.start > self.total

    def note(self, given: float, took: float) -> None:
        """A search that was given some seconds took others, its final included."""
        self._beyond.append(max(0.0, took - given))

    def _overhead(self) -> float:
        recent = self._beyond[-_RECENT:]
        return sum(recent) / len(recent) if recent else _BEYOND_S
