"""What a database holds: devices, problems, candidates, searches, measurements of every outcome, claims, winners.

The tables themselves are made by the migrations in `db/migrations`; a test compares the two.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from autotune.store.types import PlainJson, UtcTime

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Parent of all tables; constraints are named so that later migrations can change them."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {dict[str, Any]: PlainJson, datetime: UtcTime, str: Text}  # noqa: RUF012


class Device(Base):
    """A device that measurements belong to. `name` is `DeviceIdentity.name`: `h200`, `cpu:h200`."""

    __tablename__ = "device"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str] = mapped_column(String(16))
    title: Mapped[str]
    arch: Mapped[str] = mapped_column(String(16))
    compute_capability: Mapped[int] = mapped_column(index=True)
    spec: Mapped[dict[str, Any]]


class ProblemRow(Base):
    """A problem. `key` is `Problem.key`."""

    __tablename__ = "problem"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    op: Mapped[str] = mapped_column(index=True)
    fields: Mapped[dict[str, Any]]


class CandidateRow(Base):
    """A configuration of one version of a template. `config` keeps the order of the parameters."""

    __tablename__ = "candidate"
    __table_args__ = (UniqueConstraint("op", "template_hash", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str]
    template: Mapped[str]
    template_hash: Mapped[str] = mapped_column(String(64))
    key: Mapped[str]
    config: Mapped[dict[str, Any]]


class SearchRow(Base):
    """One search. `key` is the hash of the settings that identify it; budget and state change as it goes on."""

    __tablename__ = "search"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"), index=True)
    settings: Mapped[dict[str, Any]]
    budget: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class MeasurementRow(Base):
    """The record of one trial, or of a finalist's re-timing (`stage`).

    `detail` is the whole `Measurement`; the other columns repeat what queries need. A trial of a candidate
    exists once for each source, driver and compiler; finalists may be re-timed any number of times.
    """

    __tablename__ = "measurement"

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidate.id"))
    search_id: Mapped[int | None] = mapped_column(ForeignKey("search.id"), index=True)
    stage: Mapped[str] = mapped_column(String(8))
    source_hash: Mapped[str] = mapped_column(String(64))
    driver: Mapped[str]
    compiler: Mapped[str]
    outcome: Mapped[str] = mapped_column(String(16))
    kind: Mapped[str | None] = mapped_column(String(16))
    ms: Mapped[float | None] = mapped_column(Float)
    energy_mj: Mapped[float | None] = mapped_column(Float)
    machine_code: Mapped[str | None] = mapped_column(String(64))
    package_version: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[datetime]
    detail: Mapped[dict[str, Any]]

    device: Mapped[Device] = relationship(lazy="joined", innerjoin=True)
    problem: Mapped[ProblemRow] = relationship(lazy="joined", innerjoin=True)
    candidate: Mapped[CandidateRow] = relationship(lazy="joined", innerjoin=True)

    __table_args__ = (
        CheckConstraint("stage IN ('trial', 'final')", name="stage"),
        CheckConstraint("(ms IS NULL) = (kind IS NULL)", name="kind_with_ms"),
        CheckConstraint("ms IS NULL OR ms > 0", name="ms_positive"),
        CheckConstraint("outcome <> 'ok' OR ms IS NOT NULL", name="ok_has_ms"),
        Index(
            "uq_measurement_trial", "problem_id", "device_id", "candidate_id", "source_hash", "driver", "compiler",
            unique=True, sqlite_where=stage == "trial", postgresql_where=stage == "trial",
        ),
        Index(None, "problem_id", "device_id", "id"),
        Index(
            "ix_measurement_best", "problem_id", "device_id", "kind", "ms",
            sqlite_where=outcome == "ok", postgresql_where=outcome == "ok",
        ),
        Index(None, "candidate_id"),
        {"sqlite_autoincrement": True},  # an id is never given twice: readers follow by it
    )  # fmt: skip


class Claim(Base):
    """A candidate being evaluated right now, so that no other worker starts it; void once it has expired.

    Without a candidate: the winner is being named. `place` and `started` tell the owner's process from others of its
    number (`autotune.core.whereabouts`).
    """

    __tablename__ = "claim"
    __table_args__ = (UniqueConstraint("problem_id", "device_id", "candidate_id"), Index(None, "owner"))

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    candidate_id: Mapped[int | None] = mapped_column(ForeignKey("candidate.id"))
    owner: Mapped[str] = mapped_column(String(64))
    host: Mapped[str]
    pid: Mapped[int] = mapped_column(Integer)
    place: Mapped[str]
    started: Mapped[int] = mapped_column(BigInteger)
    expires: Mapped[float] = mapped_column(Float)  # seconds since the epoch, by the server's clock


class Winner(Base):
    """The best ok measurement of a problem on a device, one for measured and one for estimated times."""

    __tablename__ = "winner"
    __table_args__ = (UniqueConstraint("problem_id", "device_id", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"), index=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    kind: Mapped[str] = mapped_column(String(16))
    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"), index=True)
    updated_at: Mapped[datetime]

    # Outer: a winner whose record is gone from an edited database is to be noticed, not left out.
    measurement: Mapped[MeasurementRow] = relationship(lazy="joined", innerjoin=False)
