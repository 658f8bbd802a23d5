"""What a search returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.core.candidate import Candidate
from autotune.core.measurement import Measurement
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.families.traits import Traits
from autotune.tuning.timeline import Event

TIE = 0.001
"""Part of a time by which estimates may differ and still be taken as equal."""


@dataclass(frozen=True)
class Ranked:
    """A verified candidate with its time and the rates that follow from the op's flops and compulsory bytes."""

    candidate: Candidate
    measurement: Measurement
    record_id: int
    ms: float
    tflops: float  # TFLOP/s
    gbs: float  # GB/s
    traits: Traits | None = None  # None where the family is not at hand

    @property
    def gflops_per_watt(self) -> float | None:
        """GFLOP a joule, which is GFLOP/s a watt; None where the energy was not measured."""
        mj = self.measurement.mj
        return None if mj is None else self.tflops * self.ms / mj * 1e3

    def to_json(self) -> dict[str, Any]:
        """Plain data, the whole measurement included."""
        return {
            "template": self.candidate.template,
            "config": self.candidate.config,
            **(self.traits.to_json() if self.traits else {}),
            "ms": self.ms,
            "tflops": self.tflops,
            "gbs": self.gbs,
            "energy_mj": self.measurement.mj,
            "power_w": None if self.measurement.energy is None else self.measurement.energy.power_w,
            "gflops_per_watt": self.gflops_per_watt,
            "record_id": self.record_id,
            "measurement": self.measurement.to_json(),
        }


@dataclass(frozen=True)
class SearchResult:
    """How a search went. Seconds are of this run; trials and outcomes are those of the whole search, whoever made them.

    `resumed` of the trials were known before this run, `new` were made by it, the others by other workers meanwhile.

    `estimated`: the times are modelled, for the device named, not measured. `executed` is the problem that was run
    and verified (on the emulator a reduced one). `stopped` says why it ended.
    """

    problem: Problem
    device: str
    title: str
    estimated: bool
    executed: Problem
    best: Ranked | None
    table: tuple[Ranked, ...]
    trials: int
    resumed: int
    new: int
    outcomes: Mapping[Outcome, int]
    messages: Mapping[Outcome, str]
    space_size: int
    asked: int
    duplicates: int
    seconds: float
    build_seconds: float
    device_seconds: float
    stopped: str
    database: str
    dropped: int = 0  # candidates under way when the time was up, of which nothing is known
    unplayed: int = 0  # finalists that were not timed once more, since the time was up
    ties: int = 0  # candidates other than the best whose estimate is within `TIE` of its
    unexamined: str = ""  # why the winner was not examined on another problem and by the checker, or in part
    interrupted: bool = False  # Ctrl-C was pressed, be it after the budget was reached
    firsts: Mapping[Outcome, Candidate] = field(default_factory=dict)  # those of `messages`
    objective: str = "time"
    max_error: float | None = None
    pareto: tuple[Ranked, ...] = ()  # what no other beats in time and energy, fastest first, where energy was measured
    timeline: Mapping[Event, float] = field(default_factory=dict)  # seconds since the run began

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem.to_json(),
            "device": self.device,
            "device_title": self.title,
            "kind": "estimated" if self.estimated else "measured",
            "executed": self.executed.to_json(),
            "best": self.best and self.best.to_json(),
            "table": [ranked.to_json() for ranked in self.table],
            "ties": self.ties,
            "objective": self.objective,
            "max_error": self.max_error,
            "pareto": [ranked.to_json() for ranked in self.pareto],
            "trials": self.trials,
            "resumed": self.resumed,
            "new": self.new,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "messages": {outcome.value: message for outcome, message in self.messages.items()},
            "space_size": self.space_size,
            "asked": self.asked,
            "duplicates": self.duplicates,
            "seconds": round(self.seconds, 3),
            "build_seconds": round(self.build_seconds, 3),
            "device_seconds": round(self.device_seconds, 3),
            "timeline": {event: round(seconds, 3) for event, seconds in self.timeline.items()},
            "stopped": self.stopped,
            "dropped": self.dropped,
            "unplayed": self.unplayed,
            "unexamined": self.unexamined,
            "database": self.database,
        }
