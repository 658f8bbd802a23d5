"""The store: every measurement and every winner behind one object. Each method is one committed transaction."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate
from autotune.core.errors import StoreError
from autotune.core.measurement import Measurement, TimingKind, Version
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store import claims, queries, recording, rejecting, renewal
from autotune.store.connections import reading, writing
from autotune.store.json_lines import Line
from autotune.store.location import shown
from autotune.store.opening import open_engine
from autotune.store.plain import dumps
from autotune.store.records import (
    ClaimAnswer,
    DeviceSummary,
    Owner,
    ProblemSummary,
    SearchState,
    SearchSummary,
    Stage,
    StoredMeasurement,
    StoredSearch,
    StoredWinner,
)
from autotune.store.rows import device_row, now, problem_row, to_record, to_search
from autotune.store.schema import ensure_schema
from autotune.store.tables import MeasurementRow, SearchRow

_PAGE = 500


def open_store(url: str | Path | None = None, *, create: bool = True) -> "Store":
    """Open a database given as path or SQLAlchemy URL; None means `AUTOTUNE_DB`, else the user's data folder.

    A missing or empty database is made when `create`; two processes that start at once make one.

    Raises:
        UsageError: a malformed or unsupported URL.
        StoreError: missing without `create`, of another schema version, damaged, not ours, or not accessible.
    """
    engine = open_engine(url, create=create)
    ensure_schema(engine, create=create)
    return Store(engine)


class Store:
    """An open database. Safe to use from several threads and, opened in each, from several processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def location(self) -> str:
        """Its path, or its URL without the password."""
        return shown(self._engine.url)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session that is the only writing one, committed at the end of the block."""
        with writing(self._engine) as connection, Session(connection, expire_on_commit=False) as session:
            yield session
            session.flush()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that sees one state of the database."""
        with reading(self._engine) as connection, Session(connection, expire_on_commit=False) as session:
            yield session

    # --- searches

    def start_search(
        self, identity: DeviceIdentity, problem: Problem, settings: Mapping[str, Any], budget: Mapping[str, Any]
    ) -> StoredSearch:
        """Begin a search, or go on with the one of the same device, problem and settings (`resumed`).

        Args:
            identity: the device.
            problem: what is tuned.
            settings: JSON data that identifies the search: families with their hashes, sampler, seed.
            budget: JSON data that may differ from run to run: trials, timeout.
        """
        key = search_key(identity, problem, settings)
        with self.write() as session:
            row = session.scalars(select(SearchRow).where(SearchRow.key == key)).one_or_none()
            resumed = row is not None
            if row is None:
                row = SearchRow(key=key, settings=dict(settings), created_at=now())
                row.device_id, row.problem_id = device_row(session, identity).id, problem_row(session, problem).id
                session.add(row)
            row.budget, row.state, row.updated_at = dict(budget), "running", now()
            session.flush()
            return to_search(session, row, resumed=resumed)

    def end_search(self, search_id: int, state: SearchState) -> None:
        """Note how a search stands: `finished` or `interrupted`."""
        with self.write() as session:
            row = session.get(SearchRow, search_id)
            if row is None:
                raise StoreError(f"there is no search {search_id} in {self.location}")
            row.state, row.updated_at = state, now()

    # --- measurements

    def record(
        self,
        identity: DeviceIdentity,
        problem: Problem,
        candidate: Candidate,
        source_hash: str,
        measurement: Measurement,
        search_id: int | None = None,
        *,
        stage: Stage = "trial",
    ) -> int:
        """Store a measurement of any outcome, release the claim on its candidate; returns the record's id.

        A trial of the same candidate, source, driver and compiler (`environment["driver"]`,
        `environment["compiler"]`) that is there already is kept, and its id returned; a `final` (a finalist's
        re-timing) is always added. The fastest ok trial becomes the provisional winner, until `name_winner`.

        Raises:
            StoreError: `ok` without a time, a time that is not positive and finite, or the database's refusal.
        """
        trial = recording.Trial(identity, problem, candidate, source_hash, measurement, search_id, stage)
        with self.write() as session:
            return recording.write(session, trial)

    def measurement(self, measurement_id: int) -> StoredMeasurement | None:
        """One record by its id."""
        with self.read() as session:
            row = session.get(MeasurementRow, measurement_id)
            return None if row is None else to_record(row)

    def measurements(
        self,
        problem: Problem | None = None,
        device_name: str | None = None,
        *,
        after_id: int = 0,
        search_id: int | None = None,
        driver: str | None = None,
        compiler: str | None = None,
        outcome: Outcome | None = None,
        stage: Stage | None = "trial",
    ) -> Iterator[StoredMeasurement]:
        """Records with ids above `after_id`, oldest first; None means any.

        Ids ascend in the order of commits, so passing the last id seen yields exactly what has come since, from
        other workers too. No transaction stays open between the records.
        """
        where = {
            "problem": None if problem is None else problem.key, "device": device_name, "search_id": search_id,
            "driver": driver, "compiler": compiler, "outcome": outcome, "stage": stage,
        }  # fmt: skip
        while True:
            with self.read() as session:
                records = queries.page(session, where, after_id=after_id, limit=_PAGE)
            yield from records
            if len(records) < _PAGE:
                return
            after_id = records[-1].id

    def trials(
        self,
        *,
        op: str | None = None,
        device: str | None = None,
        template: str | None = None,
        outcome: Outcome | None = None,
        source_hash: str | None = None,
        problems: Sequence[str] | None = None,
        limit: int = 50,
        fastest: bool = False,
    ) -> list[StoredMeasurement]:
        """The newest records, newest first; or the fastest of those with a time, fastest first.

        `problems`: of these alone, by their keys.
        """
        where = {
            "op": op, "device": device, "template": template, "outcome": outcome, "source_hash": source_hash,
            "problems": problems,
        }  # fmt: skip
        with self.read() as session:
            return (queries.fastest if fastest else queries.newest)(session, where, limit)

    def history(self, measurement_id: int) -> list[StoredMeasurement]:
        """Every record of the same configuration, problem and device, over drivers and versions of the template."""
        with self.read() as session:
            return list(queries.same_candidate(session, measurement_id))

    def improvements(self, problem: Problem, device: str, kind: TimingKind) -> list[StoredMeasurement]:
        """The ok trials that were the fastest so far when they ended, oldest first."""
        with self.read() as session:
            return queries.improvements(session, problem, device, kind)

    # --- claims

    def claim(
        self,
        identity: DeviceIdentity,
        problem: Problem,
        candidate: Candidate,
        owner: Owner,
        *,
        source_hash: str | None = None,
        driver: str | None = None,
        compiler: str | None = None,
    ) -> ClaimAnswer:
        """Ask to evaluate a candidate: `granted`, `held` by another owner, or `measured` already.

        Args:
            identity: the device.
            problem: what is tuned.
            candidate: what to evaluate.
            owner: who asks; `Owner.here()` once a process.
            source_hash: with `driver` and `compiler`, which trials count as measured; None means any.
            driver: as above.
            compiler: as above.

        A claim ends with `record`, `release`, or when it is stale: no heartbeat for `claims.STALE_SECONDS`, or
        its process on this host is gone.
        """
        given = {"source_hash": source_hash, "driver": driver, "compiler": compiler}
        versions = {name: value for name, value in given.items() if value is not None}
        with self.write() as session:
            return claims.claim(session, identity, problem, candidate, owner, versions)

    def heartbeat(self, owner: Owner) -> int:
        """Keep an owner's claims alive (every 10 to 30 s); returns how many it has."""
        with self.write() as session:
            return claims.heartbeat(session, owner)

    def release(self, owner: Owner) -> int:
        """Give up all of an owner's claims; returns how many there were."""
        with self.write() as session:
            return claims.release(session, owner)

    # --- winners and lists

    def winner(self, problem: Problem, device_name: str, kind: TimingKind | None = None) -> StoredWinner | None:
        """The winner of a problem on a device; a measured one first when `kind` is None."""
        with self.read() as session:
            return queries.winner(session, problem, device_name, kind)

    def name_winner(self, measurement_id: int, *, spills: bool = True) -> bool:
        """Make a finalist the winner of its problem, device and kind (measured or estimated).

        False if the standing winner is faster by its newest figure: have it among the finalists, so that both
        are timed in one run. It yields in any case to a new version of its own template, and without `spills` if its
        registers spill.

        Raises:
            StoreError: no such measurement, or not an ok one.
        """
        with self.write() as session:
            return recording.name(session, measurement_id, spills=spills)

    def reject(self, measurement_id: int, message: str) -> None:
        """Make a candidate's ok records wrong results, and let the best of the others win where it was the winner."""
        with self.write() as session:
            rejecting.reject(session, measurement_id, message)

    def renew_winner(self, measurement_id: int, line: Line) -> bool:
        """Record what a re-check found of a winner: its machine code, or a later text of its family that gives it, too.

        False where it is the winner no longer, or its later version has failed.

        Raises:
            StoreError: the database's refusal.
        """
        code = line.measurement.machine_code
        with self.write() as session:
            record = to_record(session.get_one(MeasurementRow, measurement_id))
            if record.measurement.machine_code is None and code is not None:
                renewal.adopt(session, measurement_id, code)
            if record.candidate == line.candidate:
                return True
            later = Version(line.candidate.template_hash, line.source_hash)
            return renewal.renew(session, measurement_id, line.candidate, later) is not None

    def winners(
        self, *, op: str | None = None, device: str | None = None, kind: TimingKind | None = None
    ) -> list[StoredWinner]:
        """All winners, by device and problem."""
        with self.read() as session:
            return queries.winners(session, op, device, kind)

    def problems(self, *, op: str | None = None) -> list[ProblemSummary]:
        """Every problem on every device it was tried on."""
        with self.read() as session:
            return queries.problems(session, op)

    def searches(self) -> list[SearchSummary]:
        """Every search, oldest first, with what it came to."""
        with self.read() as session:
            return queries.searches(session)

    def devices(self) -> list[DeviceSummary]:
        with self.read() as session:
            return queries.devices(session)


def search_key(identity: DeviceIdentity, problem: Problem, settings: Mapping[str, Any]) -> str:
    """The identity of a search: a hash over device, problem and settings, whatever the order of the latter."""
    items = sorted((name, dumps(value)) for name, value in settings.items())
    return hashlib.sha256(dumps([identity.name, problem.key, items]).encode()).hexdigest()[:32]
