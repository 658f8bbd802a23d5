"""The database as one search sees it: its problem, its device, its versions of the families."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import Protocol

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement, TimingKind
from autotune.core.model_version import DRIVER, UNCOUNTED_DRIVER
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store import Store
from autotune.store.records import ClaimAnswer, Owner, StoredMeasurement

_HEARTBEAT_S = 15.0


class Log(Protocol):
    """Where the search loop reads what is known, claims candidates and writes results (`Records`)."""

    def news(self) -> Iterator[StoredMeasurement]:
        """Trials recorded since the last call."""

    def claim(self, candidate: Candidate) -> ClaimAnswer:
        """Ask to evaluate a candidate."""

    def write(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:
        """Record a trial; gives its id."""

    def keep_alive(self) -> None:
        """Called now and then."""

    def release(self) -> None:
        """Give up all claims."""


@dataclass
class Records:
    """Reads what any process records for this search, and writes what this one finds. Used by one thread.

    `driver`: only records made with this driver count (with the present model, those that it could not count, too);
    None means any.
    """

    store: Store
    identity: DeviceIdentity
    problem: Problem
    search_id: int | None = None
    driver: str | None = None
    owner: Owner = field(default_factory=Owner.here)
    _last: dict[str | None, int] = field(default_factory=dict)  # id read, by driver
    _last_beat: float = field(default_factory=time.monotonic)

    def news(self) -> Iterator[StoredMeasurement]:
        """Trials recorded since the last call, oldest first; the first call yields all there are.

        What was ruled out before anything was built names no driver.
        """
        drivers = (self.driver, UNCOUNTED_DRIVER) if self.driver == DRIVER else (self.driver,)
        ruled_out = () if self.driver in (None, "") else ("",)
        yield from merge(*map(self._news, (*drivers, *ruled_out)), key=lambda record: record.id)

    def _news(self, driver: str | None) -> Iterator[StoredMeasurement]:
        outcome = Outcome.INFEASIBLE if driver == "" and self.driver != "" else None
        arrived = self.store.measurements(
            self.problem, self.identity.name, after_id=self._last.get(driver, 0), driver=driver, outcome=outcome,
            stage="trial",
        )  # fmt: skip
        for record in arrived:
            self._last[driver] = record.id
            yield record

    def claim(self, candidate: Candidate) -> ClaimAnswer:
        """Ask to evaluate a candidate."""
        return self.store.claim(self.identity, self.problem, candidate, self.owner, driver=self.driver)

    def write(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:
        """Record a trial, committed when this returns; gives its id."""
        return self.store.record(self.identity, self.problem, candidate, source_hash, measurement, self.search_id)

    def write_final(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:
        """Record a finalist's new time; gives the record's id."""
        return self.store.record(
            self.identity, self.problem, candidate, source_hash, measurement, self.search_id, stage="final"
        )

    def standing(self, kind: TimingKind) -> Candidate | None:
        """The winner so far, from this search or any other."""
        winner = self.store.winner(self.problem, self.identity.name, kind)
        return None if winner is None else winner.record.candidate

    def name_winner(self, record_id: int, *, spills: bool) -> bool:
        """Make a record the winner; False if the standing one is faster and, without `spills`, spills nothing."""
        return self.store.name_winner(record_id, spills=spills)

    def reject(self, record_id: int, message: str) -> None:
        """Take back that a candidate is right: wherever it is recorded for this problem and device."""
        self.store.reject(record_id, message)

    def keep_alive(self) -> None:
        """Tell other processes, now and then, that our claims still hold."""
        if time.monotonic() - self._last_beat > _HEARTBEAT_S:
            self.store.heartbeat(self.owner)
            self._last_beat = time.monotonic()

    def release(self) -> None:
        """Give up the claims on candidates that will not be evaluated."""
        self.store.release(self.owner)
