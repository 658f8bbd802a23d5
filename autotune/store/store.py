"""The store: every measurement and every winner behind one object. Each method is one committed transaction."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate
from autotune.core.errors import StoreError
from autotune.core.measurement import Energy, Measurement, TimingKind
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store import claims, forgetting, queries, recording, rejecting, renewal, searches
from autotune.store.connections import reading, writing
from autotune.store.forgetting import Forgotten
from autotune.store.json_lines import Line
from autotune.store.location import shown
from autotune.store.opening import open_engine
from autotune.store.patience import PATIENCE, Patience, persistent
from autotune.store.records import (
    ClaimAnswer,
    DeviceSummary,
    Owner,
    ProblemSummary,
    SearchState,
    SearchSummary,
    Stage,
    StandingClaim,
    StoredMeasurement,
    StoredSearch,
    StoredWinner,
)
from autotune.store.rows import to_record
from autotune.store.schema import ensure_schema
from autotune.store.tables import MeasurementRow

_PAGE = 500
_HARDLY_S = 1.0

Result = TypeVar("Result")


def open_store(url: str | Path | None = None, *, create: bool = True, patience: Patience = PATIENCE) -> "Store":
    """Open a database given as path or SQLAlchemy URL; None means `AUTOTUNE_DB`, else the user's data folder.

    A missing or empty database is made when `create`; two processes that start at once make one. `patience`: with a
    server, once it has answered; one that does not answer at first is not waited for.

    Raises:
        UsageError: a malformed or unsupported URL.
        StoreError: missing without `create`, of another schema version, damaged, not ours, or not accessible.
    """
    engine = open_engine(url, create=create, patience=patience)
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

    def transact(self, do: Callable[[Session], Result], limit_s: float | None = None) -> Result:
        """Do something in a transaction that is the only writing one; once more where a server was away over it.

        `do` must be something that may be done twice: a commit may have arrived though its answer did not. `limit_s`:
        how long a server that is away is asked again, by default as long as the store's patience goes.

        Raises:
            StoreError: the database cannot be written.
        """

        def transaction() -> Result:
            with self.write() as session:
                return do(session)

        return persistent(self._engine, transaction, limit_s)

    def look(self, do: Callable[[Session], Result]) -> Result:
        """Read in a transaction; once more where a server was away over it.

        Raises:
            StoreError: the database cannot be read.
        """

        def transaction() -> Result:
            with self.read() as session:
                return do(session)

        return persistent(self._engine, transaction)

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
        self, identity: DeviceIdentity, problem: Problem, settings: Mapping[str, Any], budget: Mapping[str, Any],
        owner: Owner | None = None,
    ) -> StoredSearch:  # fmt: skip
        """Begin a search, or go on with the one of the same device, problem and settings (`resumed`).

        Args:
            identity: the device.
            problem: what is tuned.
            settings: JSON data that identifies the search: families with their hashes, sampler, seed.
            budget: JSON data that may differ from run to run: trials, timeout.
            owner: who is at it, until `end_search`: once its process is gone, the search counts as interrupted.
        """
        return self.transact(lambda session: searches.start(session, identity, problem, settings, budget, owner))

    def end_search(self, search_id: int, state: SearchState, owner: Owner | None = None) -> None:
        """Note how a search stands, `finished` or `interrupted`, and that the owner is no longer at it."""
        if not self.transact(lambda session: searches.end(session, search_id, state, owner)):
            raise StoreError(f"there is no search {search_id} in {self.location}")

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
        return self.transact(lambda session: recording.write(session, trial))

    def measurement(self, measurement_id: int) -> StoredMeasurement | None:
        """One record by its id."""
        row = self.look(lambda session: session.get(MeasurementRow, measurement_id))
        return None if row is None else to_record(row)

    def measurements(
        self,
        problem: Problem | None = None,
        device_name: str | None = None,
        *,
        after_id: int = 0,
        search_id: int | None = None,
        driver: str | Sequence[str] | None = None,
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
            records = self.look(partial(queries.page, where=where, after_id=after_id, limit=_PAGE))
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
        return self.look(lambda session: (queries.fastest if fastest else queries.newest)(session, where, limit))

    def history(self, measurement_id: int) -> list[StoredMeasurement]:
        """Every record of the same configuration, problem and device, over drivers and versions of the template."""
        return self.look(lambda session: list(queries.same_candidate(session, measurement_id)))

    def improvements(self, problem: Problem, device: str, kind: TimingKind) -> list[StoredMeasurement]:
        """The ok trials that were the fastest so far when they ended, oldest first."""
        return self.look(lambda session: queries.improvements(session, problem, device, kind))

    # --- claims

    def claim(
        self,
        identity: DeviceIdentity,
        problem: Problem,
        candidate: Candidate | None,
        owner: Owner,
        terms: claims.Terms = claims.Terms(),  # noqa: B008 - it cannot change
    ) -> ClaimAnswer:
        """Ask to evaluate a candidate, or with None to name the winner; `owner`: `Owner.here()`, once a search.

        A claim ends with `record`, `release`, or when nobody renews it: then, or where its process is known to be
        gone, it goes to the next who asks.
        """
        return self.transact(lambda session: claims.claim(session, identity, problem, candidate, owner, terms))

    def standing_claims(self, identity: DeviceIdentity, problem: Problem, asker: Owner) -> list[StandingClaim]:
        """All claims on candidates for a problem on a device."""
        return self.look(lambda session: claims.standing(session, identity, problem, asker))

    def heartbeat(self, owner: Owner, lease_s: float = claims.LEASE_S) -> int:
        """Renew an owner's claims; returns how many it has. A server that is away is hardly waited for."""
        return self.transact(lambda session: claims.heartbeat(session, owner, lease_s), limit_s=_HARDLY_S)

    def release(self, owner: Owner, problem: Problem | None = None, candidate: Candidate | None = None) -> int:
        """Give up all of an owner's claims, or that on one candidate for a problem; returns how many there were.

        A server that is away is hardly waited for.
        """
        return self.transact(lambda session: claims.release(session, owner, problem, candidate), limit_s=_HARDLY_S)

    # --- winners and lists

    def winner(self, problem: Problem, device_name: str, kind: TimingKind | None = None) -> StoredWinner | None:
        """The winner of a problem on a device; a measured one first when `kind` is None."""
        return self.look(lambda session: queries.winner(session, problem, device_name, kind))

    def name_winner(self, measurement_id: int, *, spills: bool = True) -> bool:
        """Make a finalist the winner of its problem, device and kind (measured or estimated).

        False if the standing winner is faster by its newest figure: have it among the finalists, so that both
        are timed in one run. It yields in any case to a new version of its own template, and without `spills` if its
        registers spill.

        Raises:
            StoreError: no such measurement, or not an ok one.
        """
        return self.transact(lambda session: recording.name(session, measurement_id, spills=spills))

    def add_energy(self, measurement_id: int, energy: Energy) -> None:
        """Enter what energy a recorded candidate takes, where that was not measured before; a failed one keeps none.

        Raises:
            StoreError: no such record, or an energy that is not positive and finite.
        """
        self.transact(lambda session: recording.add_energy(session, measurement_id, energy))

    def reject(self, measurement_id: int, message: str) -> None:
        """Make a candidate's ok records wrong results, and let the best of the others win where it was the winner."""
        self.transact(lambda session: rejecting.reject(session, measurement_id, message))

    def forget(self, where: Mapping[str, Any], ids: Sequence[int] = (), *, dry: bool = False) -> Forgotten:
        """Delete records, of trials and of finals; the best of those that are left wins where a winner was among them.

        Args:
            where: which: values, or lists of them, of `op`, `problem` (key), `device` (name), `template`, `outcome`.
            ids: of these only.
            dry: change nothing, say what would be deleted.

        Raises:
            StoreError: there is no record of one of these ids, or the database's refusal; nothing was deleted.
        """
        return self.transact(lambda session: forgetting.forget(session, where, ids, dry=dry))

    def renew_winner(self, measurement_id: int, line: Line) -> bool:
        """Record what a re-check found of a winner: its machine code, or a later text of its family that gives it, too.

        False where it is the winner no longer, or its later version has failed.

        Raises:
            StoreError: the database's refusal.
        """
        return self.transact(lambda session: renewal.renew_line(session, measurement_id, line))

    def winners(
        self, *, op: str | None = None, device: str | None = None, kind: TimingKind | None = None
    ) -> list[StoredWinner]:
        """All winners, by device and problem."""
        return self.look(lambda session: queries.winners(session, op, device, kind))

    def problems(self, *, op: str | None = None) -> list[ProblemSummary]:
        """Every problem on every device it was tried on."""
        return self.look(lambda session: queries.problems(session, op))

    def searches(self) -> list[SearchSummary]:
        """Every search, oldest first, with what it came to."""
        return self.look(queries.searches)

    def devices(self) -> list[DeviceSummary]:
        return self.look(queries.devices)
