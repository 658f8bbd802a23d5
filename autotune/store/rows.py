"""Between rows and plain records."""

from datetime import UTC, datetime
from typing import cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity, parse_device
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import stored_problem
from autotune.store import runners
from autotune.store.records import SearchState, Stage, StoredMeasurement, StoredSearch, StoredWinner
from autotune.store.soundness import fault, readable, unsound, unsound_winner
from autotune.store.tables import CandidateRow, Device, MeasurementRow, ProblemRow, SearchRow, Winner


def now() -> datetime:
    """This moment, in UTC."""
    return datetime.now(UTC)


def package_version() -> str:
    """Version of this package."""
    from autotune.core.version import __version__

    return __version__


def device_row(session: Session, identity: DeviceIdentity) -> Device:
    """The device's row, made when missing. The newest spec is kept."""
    row = session.scalars(select(Device).where(Device.name == identity.name)).one_or_none()
    spec = identity.spec.to_json()
    if row is None:
        row = Device(name=identity.name, kind=identity.kind)
        session.add(row)
    elif row.spec == spec:
        return row
    row.title, row.arch, row.spec = identity.spec.title, identity.spec.arch, spec
    row.compute_capability = identity.spec.compute_capability
    session.flush()
    return row


def problem_row(session: Session, problem: Problem) -> ProblemRow:
    """The problem's row, made when missing."""
    row = session.scalars(select(ProblemRow).where(ProblemRow.key == problem.key)).one_or_none()
    if row is None:
        row = ProblemRow(key=problem.key, op=problem.op, fields=dict(problem.values))
        session.add(row)
        session.flush()
    return row


def candidate_row(session: Session, op: str, candidate: Candidate) -> CandidateRow:
    """The candidate's row, made when missing."""
    query = select(CandidateRow).where(
        CandidateRow.op == op, CandidateRow.template_hash == candidate.template_hash, CandidateRow.key == candidate.key
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        row = CandidateRow(
            op=op,
            template=candidate.template,
            template_hash=candidate.template_hash,
            key=candidate.key,
            config=candidate.config,
        )
        session.add(row)
        session.flush()
    return row


def to_identity(row: Device) -> DeviceIdentity:
    """A row's device."""
    return DeviceIdentity(row.kind, DeviceSpec(**row.spec), parse_device(row.name).cap)


def to_problem(row: ProblemRow) -> Problem:
    """A row's problem."""
    return stored_problem(row.op, row.fields)


def to_candidate(row: CandidateRow) -> Candidate:
    """A row's candidate."""
    return make_candidate(row.template, row.template_hash, row.config)


def to_record(row: MeasurementRow) -> StoredMeasurement:
    """A row's measurement with what it belongs to.

    Raises:
        StoreError: it says what no trial can have found.
    """
    return StoredMeasurement(
        id=row.id,
        device=row.device.name,
        problem=to_problem(row.problem),
        candidate=to_candidate(row.candidate),
        source_hash=row.source_hash,
        stage=cast(Stage, row.stage),
        search_id=row.search_id,
        package_version=row.package_version,
        created_at=row.created_at,
        measurement=_measurement(row),
    )


def _measurement(row: MeasurementRow) -> Measurement:
    with readable(row.id):
        measurement = Measurement.from_json(row.detail)
    timing = measurement.timing
    found = (measurement.outcome.value, measurement.ms, None if timing is None else timing.kind, measurement.mj)
    why = fault(measurement)
    columns = (row.outcome, row.ms, row.kind, row.energy_mj)
    if not why and found != columns:
        why = f"its columns say {_words(columns)}, its details {_words(found)}"
    if why:
        raise unsound(row.id, why)
    return measurement


def _words(figures: tuple[object, ...]) -> str:
    """Outcome, time and kind; an energy where there is one."""
    *first, energy = figures
    return " ".join(map(str, first if energy is None else figures))


def to_winner(row: Winner) -> StoredWinner:
    """A row's winner.

    Raises:
        StoreError: its record is not there, is not ok, or is of something else; or see `to_record`.
    """
    found = cast(MeasurementRow | None, row.measurement)
    if found is None:
        raise unsound_winner(row.measurement_id, "which is not there")
    if found.outcome != Outcome.OK:
        raise unsound_winner(found.id, f"whose outcome is {found.outcome}")
    if (found.problem_id, found.device_id, found.kind) != (row.problem_id, row.device_id, row.kind):
        raise unsound_winner(found.id, "which is of another problem, device or kind of time")
    return StoredWinner(to_record(found), row.updated_at)


def to_search(session: Session, row: SearchRow, *, resumed: bool = False) -> StoredSearch:
    """A row's search."""
    device, problem = session.get_one(Device, row.device_id), session.get_one(ProblemRow, row.problem_id)
    running = runners.standing(row.budget)
    state = "running" if running else row.state
    if state == "running" and not running and runners.any_noted(row.budget):
        state = "interrupted"  # by what gave it no time to say so
    return StoredSearch(
        id=row.id,
        key=row.key,
        device=device.name,
        problem=to_problem(problem),
        settings=row.settings,
        budget=runners.plain(row.budget),
        state=cast(SearchState, state),
        created_at=row.created_at,
        updated_at=row.updated_at,
        resumed=resumed,
        runners=running,
    )
