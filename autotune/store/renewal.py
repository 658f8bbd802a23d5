"""Records of a winner under a later text of its family that gives the same machine code; `answers.recheck` finds it."""

from dataclasses import replace

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement, Version
from autotune.core.outcome import Outcome
from autotune.store import recording
from autotune.store.json_lines import Line
from autotune.store.rows import candidate_row, now, to_record
from autotune.store.tables import MeasurementRow, Winner


def renew_line(session: Session, measurement_id: int, line: Line) -> bool:
    """What `Store.renew_winner` does."""
    code = line.measurement.machine_code
    record = to_record(session.get_one(MeasurementRow, measurement_id))
    if record.measurement.machine_code is None and code is not None:
        adopt(session, measurement_id, code)
    if record.candidate == line.candidate:
        return True
    later = Version(line.candidate.template_hash, line.source_hash)
    return renew(session, measurement_id, line.candidate, later) is not None


def adopt(session: Session, measurement_id: int, machine_code: str) -> None:
    """Note the machine code of a record that has none, and of those of the same binary for the same launches."""
    row = session.get_one(MeasurementRow, measurement_id)
    without = (*_same_binary(row), MeasurementRow.machine_code.is_(None))
    for other in session.scalars(select(MeasurementRow).where(*without)).all():
        other.machine_code = machine_code
        other.detail = {**other.detail, "machine_code": machine_code}


def renew(session: Session, measurement_id: int, candidate: Candidate, version: Version) -> int | None:
    """Repeat a winner's records under a later version of its family, and make the new one the winner.

    The old ones stay. Where the later version has been measured itself, that record is the winner. Returns the new
    winner's id; None where the record is the winner no longer, or the later version failed.
    """
    row = session.get_one(MeasurementRow, measurement_id)
    winner = session.scalars(select(Winner).where(Winner.measurement_id == measurement_id)).one_or_none()
    if winner is None:
        return None
    later = candidate_row(session, row.problem.op, replace(candidate, template_hash=version.template_hash))
    same = (*_same_binary(row), MeasurementRow.machine_code == row.machine_code)
    copies: dict[int, MeasurementRow] = {}
    for one in session.scalars(select(MeasurementRow).where(*same).order_by(MeasurementRow.id)).all():
        copy = _copy(one, later.id, version)
        standing = recording.recorded(session, copy)
        if standing is None:
            session.add(copy)
            session.flush()
        copies[one.id] = copy if standing is None else session.get_one(MeasurementRow, standing)
    found = copies[row.id]
    if found.outcome != Outcome.OK:
        return None
    winner.measurement_id, winner.updated_at = found.id, now()
    session.flush()
    return found.id


def _same_binary(row: MeasurementRow) -> tuple[ColumnElement[bool], ...]:
    """Ok records of the same candidate, source and compiler on the same problem and device."""
    return (
        MeasurementRow.problem_id == row.problem_id,
        MeasurementRow.device_id == row.device_id,
        MeasurementRow.candidate_id == row.candidate_id,
        MeasurementRow.source_hash == row.source_hash,
        MeasurementRow.compiler == row.compiler,
        MeasurementRow.outcome == Outcome.OK.value,
    )


def _copy(row: MeasurementRow, candidate_id: int, version: Version) -> MeasurementRow:
    measurement = Measurement.from_json(row.detail)
    first = measurement.measured_as or Version(row.candidate.template_hash, row.source_hash)
    names = [column.name for column in MeasurementRow.__table__.columns if column.name != "id"]
    values = {name: getattr(row, name) for name in names}
    values |= {"candidate_id": candidate_id, "source_hash": version.source_hash}
    values["detail"] = replace(measurement, measured_as=None if first == version else first).to_json()
    return MeasurementRow(**values)
