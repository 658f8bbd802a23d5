"""Taking records out of a database: what they were of is evaluated anew by the next search."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from autotune.core.errors import StoreError
from autotune.store.queries import filtered
from autotune.store.rejecting import replace_winners
from autotune.store.tables import MeasurementRow

_CHUNK = 500


@dataclass
class Forgotten:
    """Records by outcome, and what became of the winners among them: `replaced` by the best that is left, or `gone`."""

    outcomes: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    gone: int = 0


def forget(session: Session, where: Mapping[str, Any], ids: Sequence[int], *, dry: bool) -> Forgotten:
    """Delete the records that `where` (as `queries.filtered` has it) and `ids`, if there are any, name both.

    Raises:
        StoreError: there is no record of one of these ids; none was deleted.
    """
    found = filtered(select(MeasurementRow.id, MeasurementRow.outcome), dict(where)).order_by(MeasurementRow.id)
    named = [(number, outcome) for number, outcome in session.execute(found) if not ids or number in ids]
    report = Forgotten(Counter(outcome for _, outcome in named))
    numbers = [number for number, _ in named]
    _require(session, set(ids).difference(numbers))
    report.replaced, report.gone = replace_winners(session, numbers)
    for chunk in _chunks(numbers):
        session.execute(delete(MeasurementRow).where(MeasurementRow.id.in_(chunk)))
    if dry:
        session.rollback()
    return report


def _require(session: Session, ids: set[int]) -> None:
    """That there are such records, which `where` may have left out."""
    gone = sorted(ids.difference(session.scalars(select(MeasurementRow.id)))) if ids else []
    if gone:
        raise StoreError(f"there is no record {', '.join(map(str, gone))}; nothing was forgotten")


def _chunks(numbers: Sequence[int]) -> Iterable[Sequence[int]]:
    return (numbers[i : i + _CHUNK] for i in range(0, len(numbers), _CHUNK))
