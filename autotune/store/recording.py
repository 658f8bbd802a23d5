"""Writing measurements, and who is the winner after each."""

import math
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate
from autotune.core.errors import StoreError
from autotune.core.measurement import Energy, Measurement
from autotune.core.model_version import model_of
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store.records import Stage
from autotune.store.rows import candidate_row, device_row, now, package_version, problem_row, to_winner
from autotune.store.tables import CandidateRow, Claim, Device, MeasurementRow, ProblemRow, Winner


@dataclass(frozen=True)
class Trial:
    """All that one record consists of."""

    identity: DeviceIdentity
    problem: Problem
    candidate: Candidate
    source_hash: str
    measurement: Measurement
    search_id: int | None = None
    stage: Stage = "trial"
    at: datetime = field(default_factory=now)


def write(session: Session, trial: Trial) -> int:
    """Store a measurement, drop the claim on its candidate, and let it win if it does; returns its id.

    A trial that is recorded already keeps its first record, whose id is returned; unless that was in doubt: then the
    second verdict takes its place, under an id of its own, so that all who follow by id hear of it.
    """
    check(trial.measurement)
    row = make_row(
        trial,
        device_row(session, trial.identity),
        problem_row(session, trial.problem),
        candidate_row(session, trial.problem.op, trial.candidate),
    )
    session.execute(delete(Claim).where(*_same(Claim, row)))
    standing = recorded(session, row)
    if standing is not None:
        first = session.get_one(MeasurementRow, standing)
        if trial.stage == "final" or not Measurement.from_json(first.detail).doubtful:
            return standing
        session.delete(first)
        session.flush()
        row.detail = replace(trial.measurement, attempts=2).to_json()
    session.add(row)
    session.flush()
    contend(session, row)
    return row.id


def check(measurement: Measurement) -> None:
    """Refuse what can only be a fault of the device or the program.

    Raises:
        StoreError: `ok` without a time, or any time or energy that is not positive and finite.
    """
    ms = measurement.ms
    if ms is None and measurement.outcome is Outcome.OK:
        raise StoreError("a measurement with outcome ok has no time")
    mj = measurement.mj
    if mj is not None and not (math.isfinite(mj) and mj > 0):
        raise StoreError(f"a measurement says {mj} mJ, which is no energy a call can take; it was not stored")
    if ms is not None and not (math.isfinite(ms) and ms > 0):
        raise StoreError(f"a measurement says {ms} ms, which is no time a kernel can take; it was not stored")


def add_energy(session: Session, measurement_id: int, energy: Energy) -> None:
    """Enter what energy a recorded candidate takes, where that was not measured before.

    Raises:
        StoreError: no such record, or an energy that is none.
    """
    row = session.get(MeasurementRow, measurement_id)
    if row is None:
        raise StoreError(f"there is no record {measurement_id} to enter an energy in")
    measurement = Measurement.from_json(row.detail)
    if measurement.outcome is Outcome.OK and measurement.energy is None:
        measurement = replace(measurement, energy=energy)
        check(measurement)
        row.detail, row.energy_mj = measurement.to_json(), energy.mj


def contend(session: Session, row: MeasurementRow) -> None:
    """Make an ok trial the winner if it is faster than the standing one; finalists win through `name` alone.

    The best of many trials is a lucky one, so a candidate that has been a finalist has had its say there.
    """
    if row.outcome != Outcome.OK or row.stage != "trial":
        return
    winner = _standing(session, row)
    if winner is None:
        _crown(session, None, row)
        return
    judged = winner.measurement.stage == "final" and _was_finalist(session, row)
    if not judged and _better(row, winner.measurement):
        _crown(session, winner, row)


def name(session: Session, measurement_id: int, *, spills: bool = True) -> bool:
    """Make a finalist the winner; False if a standing winner from an earlier comparison is still faster.

    The standing winner is judged by its newest figure: where it took part in this comparison, by that one. It
    always yields to a new version of its own template and to its own candidate; a trial yields to a finalist, unless
    it is faster and has never been one. An estimate yields to any of a newer model, and to none of an older one.
    Without `spills` a standing winner whose registers spill yields in any case.

    Raises:
        StoreError: no such measurement, or not an ok one.
    """
    row = session.get(MeasurementRow, measurement_id)
    if row is None or row.outcome != Outcome.OK:
        found = "there is none" if row is None else f"its outcome is {row.outcome}"
        raise StoreError(f"measurement {measurement_id} cannot be a winner: {found}")
    winner = _standing(session, row)
    if winner is not None and winner.measurement_id == row.id:
        return True
    if winner is not None and (spills or not _spills(winner.measurement)) and _holds(session, winner.measurement, row):
        return False
    _crown(session, winner, row)
    return True


def standing_id(session: Session, row: MeasurementRow) -> int | None:
    """The measurement that is the winner of a row's problem, device and kind; None where there is none."""
    winner = _standing(session, row)
    return None if winner is None else winner.measurement_id


def _holds(session: Session, best: MeasurementRow, row: MeasurementRow) -> bool:
    new_version = (
        best.candidate.template == row.candidate.template
        and best.candidate.template_hash != row.candidate.template_hash
    )
    later = _models_later(row, best)
    if later != 0:
        return later < 0
    if best.candidate_id == row.candidate_id or new_version:
        return False
    if best.stage == "trial":
        return not (_faster(row, best) or (row.stage == "final" and _was_finalist(session, best)))
    newest = session.scalars(
        select(MeasurementRow)
        .where(*_same(MeasurementRow, best), MeasurementRow.stage == "final", MeasurementRow.kind == best.kind)
        .order_by(MeasurementRow.id.desc())
        .limit(1)
    ).one()
    return not _faster(row, newest)


def _spills(row: MeasurementRow) -> bool:
    return Measurement.from_json(row.detail).spills


def _better(row: MeasurementRow, best: MeasurementRow) -> bool:
    """Faster, or estimated by a newer model, whose figures do not compare with older ones."""
    later = _models_later(row, best)
    return later > 0 if later != 0 else _faster(row, best)


def _models_later(row: MeasurementRow, best: MeasurementRow) -> int:
    """By how many models an estimate is newer than another; 0 for measured times."""
    return model_of(row.driver) - model_of(best.driver) if row.kind == "estimated" else 0


def _faster(row: MeasurementRow, best: MeasurementRow) -> bool:
    assert row.ms is not None  # the table's constraint: ok has a time
    assert best.ms is not None
    return row.ms < best.ms


def _standing(session: Session, row: MeasurementRow) -> Winner | None:
    query = select(Winner).where(
        Winner.problem_id == row.problem_id, Winner.device_id == row.device_id, Winner.kind == row.kind
    )
    winner = session.scalars(query).one_or_none()
    if winner is not None:
        to_winner(winner)  # nothing is compared with what is not sound
    return winner


def _crown(session: Session, winner: Winner | None, row: MeasurementRow) -> None:
    if winner is None:
        winner = Winner(problem_id=row.problem_id, device_id=row.device_id, kind=str(row.kind))
        session.add(winner)
    winner.measurement_id, winner.updated_at = row.id, now()
    session.flush()


def _was_finalist(session: Session, row: MeasurementRow) -> bool:
    query = select(MeasurementRow.id).where(*_same(MeasurementRow, row), MeasurementRow.stage == "final").limit(1)
    return session.scalar(query) is not None


def recorded(session: Session, row: MeasurementRow) -> int | None:
    """Id of the record that is this one already: for a final, one of the same moment."""
    query = select(MeasurementRow.id).where(
        *_same(MeasurementRow, row),
        MeasurementRow.stage == row.stage,
        MeasurementRow.source_hash == row.source_hash,
        MeasurementRow.driver == row.driver,
        MeasurementRow.compiler == row.compiler,
    )
    if row.stage == "final":
        query = query.where(MeasurementRow.created_at == row.created_at)
    return session.scalar(query.limit(1))


def _same(table: type[MeasurementRow] | type[Claim], row: MeasurementRow) -> tuple[ColumnElement[bool], ...]:
    return (
        table.problem_id == row.problem_id,
        table.device_id == row.device_id,
        table.candidate_id == row.candidate_id,
    )


def make_row(trial: Trial, device: Device, problem: ProblemRow, candidate: CandidateRow) -> MeasurementRow:
    """A new row, in no session yet."""
    measurement = trial.measurement
    timing, environment = measurement.timing, measurement.environment
    return MeasurementRow(
        device_id=device.id,
        problem_id=problem.id,
        candidate_id=candidate.id,
        search_id=trial.search_id,
        stage=trial.stage,
        source_hash=trial.source_hash,
        driver=environment.get("driver", ""),
        compiler=environment.get("compiler", ""),
        outcome=measurement.outcome.value,
        kind=None if timing is None else timing.kind,
        ms=measurement.ms,
        energy_mj=measurement.mj,
        machine_code=measurement.machine_code,
        package_version=package_version(),
        created_at=trial.at,
        detail=measurement.to_json(),
    )
