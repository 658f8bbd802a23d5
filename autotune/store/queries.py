"""Questions to the database, answered with plain records."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from autotune.core.model_version import DRIVER, model_of
from autotune.core.problem import Problem
from autotune.store.records import DeviceSummary, ProblemSummary, SearchSummary, StoredMeasurement, StoredWinner
from autotune.store.rows import to_problem, to_record, to_search, to_winner
from autotune.store.tables import CandidateRow, Device, MeasurementRow, ProblemRow, SearchRow, Winner

_OLD_ESTIMATE = case(((MeasurementRow.kind == "estimated") & (MeasurementRow.driver != DRIVER), 1), else_=0)
"""0 for what is measured or estimated by the present model."""


def page(session: Session, where: dict[str, Any], *, after_id: int, limit: int) -> list[StoredMeasurement]:
    """The next measurements after an id, oldest first. Keys of `where`: see `filtered`."""
    query = filtered(select(MeasurementRow), where).where(MeasurementRow.id > after_id)
    return [to_record(row) for row in session.scalars(query.order_by(MeasurementRow.id).limit(limit))]


def newest(session: Session, where: dict[str, Any], limit: int) -> list[StoredMeasurement]:
    """The newest measurements, newest first."""
    query = filtered(select(MeasurementRow), where).order_by(MeasurementRow.id.desc()).limit(limit)
    return [to_record(row) for row in session.scalars(query)]


def fastest(session: Session, where: dict[str, Any], limit: int) -> list[StoredMeasurement]:
    """The fastest measurements that have a time, fastest first; estimates of older models after all others."""
    timed = filtered(select(MeasurementRow), where).where(MeasurementRow.ms.is_not(None))
    query = timed.order_by(_OLD_ESTIMATE, MeasurementRow.ms, MeasurementRow.id).limit(limit)
    return [to_record(row) for row in session.scalars(query)]


def filtered(query: Any, where: dict[str, Any]) -> Any:
    """Narrow a query over measurements by op, problem (key), problems (keys), device (name), template or any column.

    None: any. A list stands for any of its values.
    """
    related: dict[str, Any] = {
        "op": select(ProblemRow.id).where(ProblemRow.op == where.get("op")),
        "problems": select(ProblemRow.id).where(ProblemRow.key.in_(where.get("problems") or ())),
        "problem": select(ProblemRow.id).where(ProblemRow.key == where.get("problem")),
        "device": select(Device.id).where(Device.name == where.get("device")),
        "template": select(CandidateRow.id).where(CandidateRow.template == where.get("template")),
    }
    columns = {
        "op": MeasurementRow.problem_id, "problem": MeasurementRow.problem_id, "problems": MeasurementRow.problem_id,
        "device": MeasurementRow.device_id, "template": MeasurementRow.candidate_id,
    }  # fmt: skip
    for name, value in where.items():
        if value is None:
            continue
        if name in related:
            query = query.where(columns[name].in_(related[name]))
        elif isinstance(value, tuple | list):
            query = query.where(getattr(MeasurementRow, name).in_(value))
        else:
            query = query.where(getattr(MeasurementRow, name) == value)
    return query


def winner(session: Session, problem: Problem, device: str, kind: str | None) -> StoredWinner | None:
    """The winner of a problem on a device; of either kind, a measured one first, when `kind` is None."""
    query = (
        select(Winner)
        .join(ProblemRow, ProblemRow.id == Winner.problem_id)
        .join(Device, Device.id == Winner.device_id)
        .where(ProblemRow.key == problem.key, Device.name == device)
        .order_by(Winner.kind.desc())
    )
    if kind is not None:
        query = query.where(Winner.kind == kind)
    row = session.scalars(query.limit(1)).first()
    return None if row is None else to_winner(row)


def winners(session: Session, op: str | None, device: str | None, kind: str | None) -> list[StoredWinner]:
    """All winners, by device and problem."""
    query = (
        select(Winner)
        .join(ProblemRow, ProblemRow.id == Winner.problem_id)
        .join(Device, Device.id == Winner.device_id)
        .order_by(Device.name, ProblemRow.op, ProblemRow.id, Winner.kind)
    )
    for column, value in ((ProblemRow.op, op), (Device.name, device), (Winner.kind, kind)):
        if value is not None:
            query = query.where(column == value)
    return [to_winner(row) for row in session.scalars(query)]


def devices(session: Session) -> list[DeviceSummary]:
    """Every device, with how much is known about it."""
    trials = _count(session, MeasurementRow.device_id, MeasurementRow.stage == "trial")
    crowned = _count(session, Winner.device_id)
    problems: dict[int, int] = defaultdict(int)
    for device_id, _ in session.execute(select(MeasurementRow.device_id, MeasurementRow.problem_id).distinct()):
        problems[device_id] += 1
    return [
        DeviceSummary(d.name, d.kind, d.title, d.arch, problems[d.id], trials.get(d.id, 0), crowned.get(d.id, 0))
        for d in session.scalars(select(Device).order_by(Device.name))
    ]


def problems(session: Session, op: str | None) -> list[ProblemSummary]:
    """Every problem on every device it was tried on."""
    outcomes: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    table = MeasurementRow
    counts = select(table.problem_id, table.device_id, table.outcome, func.count()).where(table.stage == "trial")
    for problem_id, device_id, outcome, count in session.execute(
        counts.group_by(table.problem_id, table.device_id, table.outcome)
    ):
        outcomes[problem_id, device_id][outcome] = count
    best: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for row in session.scalars(select(Winner)):
        best[row.problem_id, row.device_id][row.kind] = to_winner(row).record.measurement.ms or 0.0
    names = {row[0]: row[1] for row in session.execute(select(Device.id, Device.name))}
    rows = {row.id: to_problem(row) for row in session.scalars(select(ProblemRow))}
    pairs = sorted((rows[p].op, p, names[d], d) for p, d in {**outcomes, **best} if op in {None, rows[p].op})
    return [ProblemSummary(rows[p], name, outcomes[p, d], best[p, d]) for _, p, name, d in pairs]


def searches(session: Session) -> list[SearchSummary]:
    """Every search with the trials that it made itself, oldest first."""
    table = MeasurementRow
    trials = select(table.search_id, table.outcome, table.kind, table.ms).where(table.stage == "trial")
    found: dict[int | None, list[Any]] = defaultdict(list)
    for search_id, *trial in session.execute(trials.where(table.search_id.is_not(None)).order_by(table.id)):
        found[search_id].append(trial)
    summaries = []
    for row in session.scalars(select(SearchRow).order_by(SearchRow.id)):
        made = found[row.id]
        timed = [(ms, -at, kind) for at, (outcome, kind, ms) in enumerate(made, 1) if outcome == "ok"]
        best = min(timed, key=lambda one: (one[0], -one[1]), default=None)
        outcomes = Counter(outcome for outcome, _, _ in made)
        summaries.append(
            SearchSummary(to_search(session, row), dict(outcomes), *((best[0], best[2], -best[1]) if best else ()))
        )
    return summaries


def same_candidate(session: Session, measurement_id: int) -> Iterator[StoredMeasurement]:
    """Every measurement of the same configuration on the same problem and device, over versions of its template."""
    row = session.get_one(MeasurementRow, measurement_id)
    query = (
        select(MeasurementRow)
        .join(CandidateRow, CandidateRow.id == MeasurementRow.candidate_id)
        .where(
            MeasurementRow.problem_id == row.problem_id,
            MeasurementRow.device_id == row.device_id,
            CandidateRow.key == row.candidate.key,
        )
        .order_by(MeasurementRow.id)
    )
    return (to_record(other) for other in session.scalars(query).all())


def improvements(session: Session, problem: Problem, device: str, kind: str) -> list[StoredMeasurement]:
    """The ok trials that were the fastest so far when they ended, oldest first.

    Of estimates those of the newest model that there are any of.
    """
    where: dict[str, Any] = {"problem": problem.key, "device": device, "kind": kind, "outcome": "ok", "stage": "trial"}
    if kind == "estimated":
        drivers = session.scalars(filtered(select(MeasurementRow.driver).distinct(), where)).all()
        where["driver"] = max(drivers, key=model_of, default=None)
    times = filtered(select(MeasurementRow.id, MeasurementRow.ms), where).order_by(MeasurementRow.id)
    best, ids = float("inf"), []
    for measurement_id, ms in session.execute(times):
        if ms is None or ms < best:  # what is not sound is refused below
            best = ms or best
            ids.append(measurement_id)
    return [to_record(session.get_one(MeasurementRow, measurement_id)) for measurement_id in ids]


def _count(session: Session, column: Any, *where: ColumnElement[bool]) -> dict[int, int]:
    counts = session.execute(select(column, func.count()).where(*where).group_by(column))
    return {row[0]: row[1] for row in counts}
