"""Claims: a candidate is evaluated by one worker at a time, and a dead worker's claims are taken over."""

import os
import socket
import time

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from autotune.core.candidate import Candidate
from autotune.core.problem import Problem
from autotune.gpus.identity import DeviceIdentity
from autotune.store.records import ClaimAnswer, Owner
from autotune.store.rows import candidate_row, device_row, problem_row
from autotune.store.tables import Claim, MeasurementRow

STALE_SECONDS = 120.0
"""A claim without a heartbeat for this long is taken over."""


def claim(
    session: Session,
    identity: DeviceIdentity,
    problem: Problem,
    candidate: Candidate,
    owner: Owner,
    versions: dict[str, str],
) -> ClaimAnswer:
    """Ask for a candidate; `versions` narrows what counts as measured (columns source_hash, driver, compiler)."""
    keys = {
        "device_id": device_row(session, identity).id,
        "problem_id": problem_row(session, problem).id,
        "candidate_id": candidate_row(session, problem.op, candidate).id,
    }
    measured = session.scalar(select(func.max(MeasurementRow.id)).filter_by(**keys, stage="trial", **versions))
    if measured is not None:
        return ClaimAnswer("measured", measurement_id=measured)
    standing = session.scalars(select(Claim).filter_by(**keys)).one_or_none()
    moment = _clock(session)
    if standing is not None and standing.owner != owner.id and not _stale(standing, moment):
        return ClaimAnswer("held", holder=Owner(standing.owner, standing.host, standing.pid))
    row = standing or Claim(**keys)
    row.owner, row.host, row.pid, row.heartbeat = owner.id, owner.host, owner.pid, moment
    session.add(row)
    return ClaimAnswer("granted")


def heartbeat(session: Session, owner: Owner) -> int:
    """Keep all claims of an owner alive; returns how many it still has."""
    moment = _clock(session)
    return session.connection().execute(update(Claim).where(Claim.owner == owner.id).values(heartbeat=moment)).rowcount


def release(session: Session, owner: Owner) -> int:
    """Give up all claims of an owner; returns how many there were."""
    return session.connection().execute(delete(Claim).where(Claim.owner == owner.id)).rowcount


def _stale(row: Claim, moment: float) -> bool:
    if moment - row.heartbeat > STALE_SECONDS:
        return True
    return row.host == socket.gethostname() and not _alive(row.pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, but another user's
        return True
    return True


def _clock(session: Session) -> float:
    """Seconds since the epoch, by the server's clock where workers on several machines share one."""
    if session.get_bind().dialect.name == "postgresql":
        return float(session.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)
    return time.time()
