"""Claims: a candidate is evaluated by one worker at a time, and a budget of trials is one budget for all of them.

A claim is a lease: its owner renews it while it lives, and whoever finds it expired takes it over. On the same boot and
in the same PID namespace nobody waits for that: there it is known whether the owner's process is gone. Moments are the
database server's, so that the clocks of hosts may differ.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import DOUBTFUL
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store.records import ClaimAnswer, Owner, StandingClaim
from autotune.store.rows import candidate_row, device_row, problem_row, to_candidate
from autotune.store.tables import CandidateRow, Claim, Device, MeasurementRow, ProblemRow

LEASE_S = 40.0
"""How long a claim holds without being renewed. With `BEATS` and `LOOKS`, a dead worker's are taken over in 46 s."""

BEATS = 4
"""How often a claim is renewed within a lease."""

LOOKS = 8
"""How often running workers look for claims to take over within a lease."""

_FORGOTTEN_S = 86400.0


@dataclass(frozen=True)
class Share:
    """What a budget that several workers share has left, as one of them knows it.

    `known` trials are recorded, as far as the records up to the id `read_to` tell, of at most `limit`. Claims on
    candidates that `counts` are trials to come.
    """

    limit: int
    known: int
    read_to: int
    counts: Callable[[Candidate], bool]


@dataclass(frozen=True)
class Terms:
    """How a candidate is asked for.

    `drivers`: trials made with any of them count as measured; none: with any driver. `again`: measured already, and
    in doubt, is no hindrance. `share`: the budget that it must fit into, if any.
    """

    drivers: Collection[str] = ()
    again: bool = False
    share: Share | None = None
    lease_s: float = LEASE_S


def claim(
    session: Session,
    identity: DeviceIdentity,
    problem: Problem,
    candidate: Candidate | None,
    owner: Owner,
    terms: Terms,
) -> ClaimAnswer:
    """Ask for a candidate, or with None for the naming of the winner."""
    place = {"device_id": device_row(session, identity).id, "problem_id": problem_row(session, problem).id}
    keys: dict[str, int | None] = {**place, "candidate_id": None}
    if candidate is not None:
        keys["candidate_id"] = candidate_row(session, problem.op, candidate).id
        measured = _measured(session, keys, terms)
        if measured is not None:
            return ClaimAnswer("measured", measurement_id=measured)
    standing = session.scalars(select(Claim).filter_by(**keys)).one_or_none()
    moment = clock(session)
    if standing is not None and standing.owner != owner.id and not _stale(standing, owner, moment):
        return ClaimAnswer("held", holder=_owner(standing))
    if standing is None and terms.share is not None:  # what is taken over is counted already
        refusal = _refusal(session, place, terms.drivers, terms.share)
        if refusal is not None:
            return refusal
    row = standing or Claim(**keys)
    row.owner, row.host, row.pid, row.place, row.started = owner.id, owner.host, owner.pid, owner.place, owner.started
    row.expires = moment + terms.lease_s
    session.add(row)
    return ClaimAnswer("granted")


def heartbeat(session: Session, owner: Owner, lease_s: float = LEASE_S) -> int:
    """Renew all claims of an owner; returns how many it still has."""
    expires = clock(session) + lease_s
    return session.connection().execute(update(Claim).where(Claim.owner == owner.id).values(expires=expires)).rowcount


def release(session: Session, owner: Owner, problem: Problem | None = None, candidate: Candidate | None = None) -> int:
    """Give up all claims of an owner, or the one on a candidate for a problem; returns how many there were."""
    query = delete(Claim).where(Claim.owner == owner.id)
    if problem is not None and candidate is not None:
        query = query.where(
            Claim.problem_id == problem_row(session, problem).id,
            Claim.candidate_id == candidate_row(session, problem.op, candidate).id,
        )
    return session.connection().execute(query).rowcount


def sweep(session: Session) -> None:
    """Remove what nobody has taken over for a day: leftovers of searches that were never gone on with."""
    session.execute(delete(Claim).where(Claim.expires < clock(session) - _FORGOTTEN_S))


def standing(session: Session, identity: DeviceIdentity, problem: Problem, asker: Owner) -> list[StandingClaim]:
    """All claims on candidates for a problem on a device, oldest first; which of them the asker could take over."""
    query = (
        select(Claim, CandidateRow)
        .join(CandidateRow, CandidateRow.id == Claim.candidate_id)
        .join(Device, Device.id == Claim.device_id)
        .join(ProblemRow, ProblemRow.id == Claim.problem_id)
        .where(Device.name == identity.name, ProblemRow.key == problem.key)
        .order_by(Claim.id)
    )
    moment = clock(session)
    return [
        StandingClaim(to_candidate(candidate), _owner(row), row.owner != asker.id and _stale(row, asker, moment))
        for row, candidate in session.execute(query)
    ]


def _refusal(session: Session, place: dict[str, int], drivers: Collection[str], share: Share) -> ClaimAnswer | None:
    """Why a budget cannot grant one more trial now. The asker counts what is recorded, so must have read all of it."""
    newest = select(func.max(MeasurementRow.id)).filter_by(**place, stage="trial")
    if drivers:
        newest = newest.where(MeasurementRow.driver.in_(drivers))
    if (session.scalar(newest) or 0) > share.read_to:
        return ClaimAnswer("behind")
    here = (Claim.device_id == place["device_id"], Claim.problem_id == place["problem_id"])
    if share.known + (session.scalar(select(func.count(Claim.candidate_id)).where(*here)) or 0) < share.limit:
        return None  # even if all claims count
    query = select(CandidateRow).join(Claim, Claim.candidate_id == CandidateRow.id).where(*here)
    to_come = sum(share.counts(to_candidate(row)) for row in session.scalars(query))
    return ClaimAnswer("full") if share.known + to_come >= share.limit else None


def _measured(session: Session, keys: dict[str, int | None], terms: Terms) -> int | None:
    """The newest trial on record that leaves nothing to evaluate."""
    query = select(MeasurementRow).filter_by(**keys, stage="trial").order_by(MeasurementRow.id.desc()).limit(1)
    if terms.drivers:
        query = query.where(MeasurementRow.driver.in_(terms.drivers))
    row = session.scalars(query).one_or_none()
    if row is None:
        return None
    doubtful = row.outcome in DOUBTFUL and Measurement.from_json(row.detail).doubtful
    return None if terms.again and doubtful else row.id


def _stale(row: Claim, asker: Owner, moment: float) -> bool:
    return row.expires < moment or _owner(row).is_gone(asker.place)


def _owner(row: Claim) -> Owner:
    return Owner(row.owner, row.host, row.pid, row.place, row.started)


def clock(session: Session) -> float:
    """Seconds since the epoch, by the server's clock where workers on several machines share one."""
    if session.get_bind().dialect.name == "postgresql":
        return float(session.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)
    return time.time()
