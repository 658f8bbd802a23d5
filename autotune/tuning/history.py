"""The database as one search sees it: its problem, its device, its versions of the families."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Protocol

from autotune.core.candidate import Candidate
from autotune.core.errors import DatabaseAway
from autotune.core.measurement import Energy, Measurement, TimingKind
from autotune.core.model_version import DRIVER, UNCOUNTED_DRIVER
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store import Store
from autotune.store.claims import LEASE_S, LOOKS, Share, Terms
from autotune.store.records import ClaimAnswer, Owner, StoredMeasurement
from autotune.tuning.lease import Heartbeat

_WAITING_LOOK_S = 1.0


@dataclass(frozen=True)
class Room:
    """A budget of `limit` trials, of which `known` are made; claims on candidates that `counts` are to come."""

    limit: int
    known: int
    counts: Callable[[Candidate], bool]


class Log(Protocol):
    """Where the search loop reads what is known, claims candidates and writes results (`Records`)."""

    def news(self) -> Iterator[StoredMeasurement]:
        """Trials recorded since the last call."""

    def claim(self, candidate: Candidate, room: Room | None = None, *, again: bool = False) -> ClaimAnswer:
        """Ask to evaluate a candidate, within a budget if there is one.

        `again`: though it was tried once, if that is in doubt.
        """

    def write(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:
        """Record a trial; gives its id."""

    def others(self, *, waiting: bool) -> Mapping[Candidate, bool] | None:
        """What others are at, and whether it may be taken over. Called often; None where it is too early to look again.

        `waiting`: there is nothing else to do.
        """

    def withdraw(self, candidate: Candidate) -> None:
        """Give up the claim on one candidate."""

    def release(self) -> None:
        """Give up all claims."""


@dataclass
class Records:
    """Reads what any process records for this search, and writes what this one finds. Used by one thread.

    `driver`: only records made with this driver count (with the present model, those that it could not count, too);
    None means any. `finished_at`: when this very search came to its end before, and so examined who had won.
    """

    store: Store
    identity: DeviceIdentity
    problem: Problem
    search_id: int | None = None
    driver: str | None = None
    owner: Owner = field(default_factory=Owner.here)
    lease_s: float = LEASE_S
    finished_at: datetime | None = None
    _read_to: int = 0
    _looked: float = 0.0

    @cached_property
    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self.store, self.owner, self.lease_s)

    @property
    def _drivers(self) -> tuple[str, ...]:
        named = () if self.driver is None else (self.driver,)
        return (*named, UNCOUNTED_DRIVER) if self.driver == DRIVER else named

    def news(self) -> Iterator[StoredMeasurement]:
        """Trials recorded since the last call, oldest first; the first call yields all there are.

        What was ruled out before anything was built names no driver, and is read as well.
        """
        drivers = (*self._drivers, "") if self._drivers else None
        arrived = self.store.measurements(
            self.problem, self.identity.name, after_id=self._read_to, driver=drivers, stage="trial"
        )
        for record in arrived:
            self._read_to = record.id
            if record.driver or not self.driver or record.measurement.outcome is Outcome.INFEASIBLE:
                yield record

    def claim(self, candidate: Candidate, room: Room | None = None, *, again: bool = False) -> ClaimAnswer:
        """Ask to evaluate a candidate; the claim is renewed until it is recorded or released."""
        share = None if room is None else Share(room.limit, room.known, self._read_to, room.counts)
        return self._claim(candidate, Terms(self._drivers, again, share, self.lease_s))

    def claim_naming(self) -> bool:
        """Ask to be the one who names the winner, until `release`."""
        return self._claim(None, Terms(lease_s=self.lease_s)).granted

    def _claim(self, candidate: Candidate | None, terms: Terms) -> ClaimAnswer:
        answer = self.store.claim(self.identity, self.problem, candidate, self.owner, terms)
        if answer.granted:
            self._heartbeat.start()
        return answer

    def withdraw(self, candidate: Candidate) -> None:
        """Give up the claim on one candidate."""
        self.store.release(self.owner, self.problem, candidate)

    def write(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:
        """Record a trial, committed when this returns; gives its id."""
        return self.store.record(self.identity, self.problem, candidate, source_hash, measurement, self.search_id)

    def write_final(self, candidate: Candidate, source_hash: str, measurement: Measurement) -> int:
        """Record a finalist's new time; gives the record's id."""
        return self.store.record(
            self.identity, self.problem, candidate, source_hash, measurement, self.search_id, stage="final"
        )

    def standing(self, kind: TimingKind) -> StoredMeasurement | None:
        """The winner so far, from this search or any other."""
        winner = self.store.winner(self.problem, self.identity.name, kind)
        return None if winner is None else winner.record

    def examined(self, winner: StoredMeasurement) -> bool:
        """Whether this winner is known to have passed its examination: after an interruption nobody knows."""
        return self.finished_at is not None and winner.created_at <= self.finished_at

    def finalists(self, after_id: int) -> set[Candidate]:
        """What has been timed again since a record was made."""
        finals = self.store.measurements(self.problem, self.identity.name, after_id=after_id, stage="final")
        return {record.candidate for record in finals}

    def metered_finals(self) -> dict[Candidate, StoredMeasurement]:
        """The newest final of each candidate that tells its energy."""
        finals = self.store.measurements(
            self.problem, self.identity.name, driver=self._drivers or None, outcome=Outcome.OK, stage="final"
        )
        return {record.candidate: record for record in finals if record.measurement.energy is not None}

    def name_winner(self, record_id: int, *, spills: bool) -> bool:
        """Make a record the winner; False if the standing one is faster and, without `spills`, spills nothing."""
        return self.store.name_winner(record_id, spills=spills)

    def add_energy(self, record_id: int, energy: Energy) -> None:
        """Enter what energy the candidate of a record takes."""
        self.store.add_energy(record_id, energy)

    def reject(self, record_id: int, message: str) -> None:
        """Take back that a candidate is right: wherever it is recorded for this problem and device."""
        self.store.reject(record_id, message)

    def others(self, *, waiting: bool) -> Mapping[Candidate, bool] | None:
        """What others are at, and whether it may be taken over; None where it is too early to look again."""
        pause = min(_WAITING_LOOK_S, self.lease_s / LOOKS) if waiting else self.lease_s / LOOKS
        if time.monotonic() - self._looked < pause:
            return None
        self._looked = time.monotonic()
        standing = self.store.standing_claims(self.identity, self.problem, self.owner)
        return {claim.candidate: claim.free for claim in standing if claim.owner.id != self.owner.id}

    def release(self) -> None:
        """Give up the claims on candidates that will not be evaluated. Where the database is away they expire."""
        self._heartbeat.stop()
        with suppress(DatabaseAway):
            self.store.release(self.owner)
