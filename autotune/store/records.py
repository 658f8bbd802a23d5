"""What the store hands out: plain frozen data, free of any database session (and of SQLAlchemy)."""

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement, TimingKind
from autotune.core.problem import Problem
from autotune.core.whereabouts import gone, place, started
from autotune.core.words import clock

Stage = Literal["trial", "final"]
"""A candidate's own trial, or its re-timing among the finalists of a search."""

SearchState = Literal["running", "finished", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """A measurement and what it is of: the same in a database, in a JSON line and in a winner that ships."""

    problem: Problem
    candidate: Candidate
    source_hash: str
    stage: Stage
    package_version: str
    created_at: datetime
    measurement: Measurement

    def parts(self) -> dict[str, Any]:
        """Its fields by name, without those of where it was found."""
        return {field.name: getattr(self, field.name) for field in fields(Record)}

    @property
    def driver(self) -> str:
        """Driver it was measured with; empty where none was involved."""
        return self.measurement.environment.get("driver", "")

    @property
    def compiler(self) -> str:
        """Compiler it was built with; empty where nothing was built."""
        return self.measurement.environment.get("compiler", "")


@dataclass(frozen=True, kw_only=True)
class StoredMeasurement(Record):
    """A record with its place in a database. `device` is `DeviceIdentity.name`."""

    id: int
    device: str
    search_id: int | None


@dataclass(frozen=True)
class StoredWinner:
    """The best ok measurement of a problem on a device, among measured or among estimated times."""

    record: StoredMeasurement
    updated_at: datetime

    @property
    def kind(self) -> TimingKind:
        """Whether its time was measured or estimated."""
        timing = self.record.measurement.timing
        assert timing is not None  # a winner has one: the store sees to it
        return timing.kind


@dataclass(frozen=True)
class StoredSearch:
    """A search; `resumed` tells that its settings had been searched before, `finished_at` when that came to its end.

    `runners`: the processes at it that are not known to be gone. Where all are, it was interrupted.
    """

    id: int
    key: str
    device: str
    problem: Problem
    settings: Mapping[str, Any]
    budget: Mapping[str, Any]
    state: SearchState
    created_at: datetime
    updated_at: datetime
    resumed: bool = False
    runners: tuple["Runner", ...] = ()
    finished_at: datetime | None = None

    def unheard(self, moment: float) -> str:
        """Of one that is running for all that can be told here: on which hosts, and since when.

        `lab2, begun 2:05:00 ago`, at a moment in seconds since the epoch; empty where it is known how it stands.
        """
        if self.state != "running" or any(runner.here for runner in self.runners):
            return ""
        hosts = dict.fromkeys(runner.owner.host for runner in self.runners)
        since = max((runner.since for runner in self.runners), default=self.updated_at.timestamp())
        return ", ".join([*hosts, f"begun {clock(max(0.0, moment - since))} ago"])


@dataclass(frozen=True)
class SearchSummary:
    """A search and what it came to: its own trials by outcome, the fastest right one, and the how-manieth that was."""

    search: StoredSearch
    outcomes: Mapping[str, int]
    best_ms: float | None = None
    kind: TimingKind | None = None
    best_at: int | None = None

    @property
    def trials(self) -> int:
        """Trials of every outcome; those that other searches had made already are not among them."""
        return sum(self.outcomes.values())


@dataclass(frozen=True)
class Owner:
    """Who claims candidates: one worker process of one search. For `place` and `started`: `core.whereabouts`."""

    id: str
    host: str
    pid: int
    place: str = ""
    started: int = 0

    @classmethod
    def here(cls) -> "Owner":
        """A new owner in this process."""
        pid = os.getpid()
        return cls(uuid.uuid4().hex, socket.gethostname(), pid, place(), started(pid))

    def is_at(self, here: str) -> bool:
        """Whether it runs, or ran, at a `place` that is known: there it can be told whether it is gone."""
        return self.place != "" and self.place == here

    def is_gone(self, here: str) -> bool:
        """Whether its process has ended, for all that can be told at a `place`."""
        return self.is_at(here) and gone(self.pid, self.started)


@dataclass(frozen=True)
class Runner:
    """A process that is at a search, and since when, in seconds since the epoch by its own clock."""

    owner: Owner
    since: float

    @property
    def here(self) -> bool:
        """Whether it runs, or ran, where this process does."""
        return self.owner.is_at(place())


@dataclass(frozen=True)
class ClaimAnswer:
    """`granted`: evaluate it. `held`: `holder` is at it. `measured`: its record is `measurement_id`.

    `full`: recorded and claimed trials make up the budget. `behind`: there are records that the asker has not read.
    """

    state: Literal["granted", "held", "measured", "full", "behind"]
    measurement_id: int | None = None
    holder: Owner | None = None

    @property
    def granted(self) -> bool:
        """Whether the candidate is the caller's to evaluate."""
        return self.state == "granted"


@dataclass(frozen=True)
class StandingClaim:
    """A candidate that somebody is at; `free` to be taken over where that somebody is dead or has not been heard of."""

    candidate: Candidate
    owner: Owner
    free: bool


@dataclass(frozen=True)
class DeviceSummary:
    """A device and how much is known about it."""

    name: str
    kind: str
    title: str
    arch: str
    problems: int
    trials: int
    winners: int


@dataclass(frozen=True)
class ProblemSummary:
    """A problem on a device: trials by outcome and the best times (ms) known."""

    problem: Problem
    device: str
    outcomes: Mapping[str, int]
    best_ms: Mapping[str, float] = field(default_factory=dict)  # by kind

    @property
    def trials(self) -> int:
        """Trials of every outcome."""
        return sum(self.outcomes.values())
