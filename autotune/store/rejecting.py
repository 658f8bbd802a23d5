"""Taking back an `ok`: a candidate that was right where it was tried, and turned out to be wrong elsewhere."""

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.core.measurement import Measurement
from autotune.core.model_version import model_of
from autotune.core.outcome import Outcome
from autotune.store.rows import now
from autotune.store.tables import MeasurementRow, Winner


def reject(session: Session, measurement_id: int, message: str) -> None:
    """Make every ok record of the measurement's source on its device, for its problem, a wrong result without a time.

    Where one of them was the winner, the best of the other records is, if there is any.
    """
    row = session.get_one(MeasurementRow, measurement_id)
    place = (MeasurementRow.problem_id == row.problem_id, MeasurementRow.device_id == row.device_id)
    ok = MeasurementRow.outcome == Outcome.OK
    own = (MeasurementRow.candidate_id == row.candidate_id, MeasurementRow.source_hash == row.source_hash)
    wrong = session.scalars(select(MeasurementRow).where(*place, *own, ok)).all()
    for record in wrong:
        measurement = Measurement.from_json(record.detail)
        changed = replace(measurement, outcome=Outcome.WRONG_RESULT, message=message, timing=None, energy=None)
        record.detail, record.outcome = changed.to_json(), changed.outcome
        record.kind = record.ms = record.energy_mj = None
    session.flush()
    replace_winners(session, [record.id for record in wrong])


def replace_winners(session: Session, ids: Collection[int]) -> tuple[int, int]:
    """Where one of these records is a winner let the best of the others win; how many were replaced, and had none."""
    replaced = gone = 0
    going = set(ids)
    for winner in session.scalars(select(Winner)).unique().all():
        if winner.measurement_id not in going:
            continue
        place = (MeasurementRow.problem_id == winner.problem_id, MeasurementRow.device_id == winner.device_id)
        same = (*place, MeasurementRow.outcome == Outcome.OK, MeasurementRow.kind == winner.kind)
        others = [row for row in session.scalars(select(MeasurementRow).where(*same)) if row.id not in going]
        if others:
            winner.measurement_id, winner.updated_at = min(others, key=_rank).id, now()
            replaced += 1
        else:
            session.delete(winner)
            gone += 1
    session.flush()
    return replaced, gone


def _rank(row: MeasurementRow) -> tuple[int, bool, float]:
    """Estimates of the newest model first, then finalists, then by time."""
    assert row.ms is not None  # the table's constraint: ok has a time
    return -model_of(row.driver) if row.kind == "estimated" else 0, row.stage != "final", row.ms
