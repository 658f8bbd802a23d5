"""Searches: known by their settings, begun and gone on with."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store import claims
from autotune.store.plain import dumps
from autotune.store.records import Owner, SearchState, StoredSearch
from autotune.store.rows import device_row, now, problem_row, to_search
from autotune.store.runners import joined, left
from autotune.store.tables import SearchRow


def start(
    session: Session, identity: DeviceIdentity, problem: Problem, settings: Mapping[str, Any],
    budget: Mapping[str, Any], owner: Owner | None = None,
) -> StoredSearch:  # fmt: skip
    """Begin a search, or go on with the one of the same device, problem and settings; `owner`: who is at it."""
    claims.sweep(session)
    key = search_key(identity, problem, settings)
    row = session.scalars(select(SearchRow).where(SearchRow.key == key)).one_or_none()
    resumed = row is not None
    if row is None:
        row = SearchRow(key=key, settings=dict(settings), created_at=now())
        row.device_id, row.problem_id = device_row(session, identity).id, problem_row(session, problem).id
        session.add(row)
    known = row.budget if resumed else {}
    finished_at = row.updated_at if resumed and row.state == "finished" else None
    row.budget, row.state, row.updated_at = joined(budget, known, owner, now().timestamp()), "running", now()
    session.flush()
    return replace(to_search(session, row, resumed=resumed), finished_at=finished_at)


def end(session: Session, search_id: int, state: SearchState, owner: Owner | None = None) -> bool:
    """Note how a search stands once the owner is no longer at it; False where there is none of that number."""
    row = session.get(SearchRow, search_id)
    if row is not None:
        row.budget, row.state, row.updated_at = left(row.budget, owner), state, now()
    return row is not None


def search_key(identity: DeviceIdentity, problem: Problem, settings: Mapping[str, Any]) -> str:
    """The identity of a search: a hash over device, problem and settings, whatever the order of the latter."""
    items = sorted((name, dumps(value)) for name, value in settings.items())
    return hashlib.sha256(dumps([identity.name, problem.key, items]).encode()).hexdigest()[:32]
