"""What a trial found, with all that is needed to judge and repeat it. Plain data, JSON in and out."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from autotune.core.model_version import UNCOUNTED
from autotune.core.outcome import DOUBTFUL, Outcome

TimingKind = Literal["measured", "estimated"]


@dataclass(frozen=True)
class Timing:
    """A time in milliseconds. `estimated` times come from a model and are never mixed with measured ones."""

    kind: TimingKind
    median_ms: float
    q1_ms: float
    q3_ms: float
    min_ms: float
    repeats: int
    method: str  # "events, L2 flushed" or the estimate's name
    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None

    @property
    def counted(self) -> bool:
        """Whether it is measured, or an estimate from counted work; others do not compare with it, and rank behind."""
        return not self.method.endswith(UNCOUNTED)

    @property
    def label(self) -> str:
        """`measured`, `estimated` or `estimated, not counted`."""
        return self.kind if self.counted else f"{self.kind}, not counted"


@dataclass(frozen=True)
class Wrong:
    """In place of a finalist's new time: its results are wrong after all."""

    message: str


@dataclass(frozen=True)
class Energy:
    """What one call takes from the GPU's supply while it is repeated back to back: all of it, idle power included.

    `call_ms` is the wall time of a call in that run, whose caches are warm; more than the median time where the host
    cannot launch as fast as the kernel ends. `idle_w` is what the GPU drew with nothing to do, shortly before.
    """

    mj: float  # millijoules a call
    power_w: float  # mean over the run
    call_ms: float
    calls: int
    seconds: float  # of the run
    method: str  # what it was read from
    idle_w: float | None = None
    clock_mhz: float | None = None  # at the end of the run, still under load
    temperature_c: float | None = None


@dataclass(frozen=True)
class OutputCheck:
    """One output compared in full with the float64 reference."""

    name: str
    max_abs_error: float
    bound: float
    not_finite: int  # NaN or Inf where the reference is finite
    at: tuple[int, ...] | None = None  # index of the worst element

    @property
    def passed(self) -> bool:
        """NaN never passes: the comparison is written so that it fails on NaN."""
        return self.not_finite == 0 and self.max_abs_error <= self.bound

    @property
    def part_of_bound(self) -> float:
        """The error over the error that is allowed: at most 1 where it passed, whatever the dtype and the output."""
        if self.bound > 0.0:
            return self.max_abs_error / self.bound
        return math.inf if self.max_abs_error > 0.0 else 0.0


@dataclass(frozen=True)
class Verification:
    """What was executed and compared. `problem` is the one executed (on the emulator a reduced one)."""

    problem: str
    checks: tuple[OutputCheck, ...]
    units_checked: int
    units_total: int

    @property
    def passed(self) -> bool:
        """Whether every output is within its bound; no output at all is a failure."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def max_abs_error(self) -> float:
        """Largest error over all outputs."""
        return max(check.max_abs_error for check in self.checks)

    @property
    def part_of_bound(self) -> float:
        """The worst output's error over its bound, which is what `--max-error` limits; infinite without an output."""
        return max((check.part_of_bound for check in self.checks), default=math.inf)


@dataclass(frozen=True)
class KernelResources:
    """One kernel's resources, from the compiler's report, and its computed occupancy (0 to 1)."""

    kernel: str
    registers: int
    spill_bytes: int
    static_smem: int
    dynamic_smem: int
    threads: int
    occupancy: float


@dataclass(frozen=True)
class Version:
    """A version of a family's text, and of the source that it rendered."""

    template_hash: str
    source_hash: str


@dataclass(frozen=True)
class Measurement:
    """The record of one trial.

    `machine_code` is a hash of what the device executes, whatever the text that it was made from; None where nothing
    was built, or by a version that did not record it. `measured_as` is the version whose text was
    measured, where the record has been renewed since: it stands for a later text that gives the same machine code.
    `attempts` is 2 where a first verdict was in doubt and this is the second one. `energy` is there where it was an
    objective, and this candidate near enough to the best to be worth the second that it takes.
    """

    outcome: Outcome
    message: str = ""
    timing: Timing | None = None
    verification: Verification | None = None
    resources: tuple[KernelResources, ...] = ()
    build_seconds: float = 0.0
    device_seconds: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)  # driver, compiler, host, package version
    machine_code: str | None = None
    measured_as: Version | None = None
    attempts: int = 1
    energy: Energy | None = None

    @property
    def ms(self) -> float | None:
        """Median time if there is one."""
        return None if self.timing is None else self.timing.median_ms

    @property
    def mj(self) -> float | None:
        """Millijoules a call if its energy was measured."""
        return None if self.energy is None else self.energy.mj

    @property
    def spills(self) -> bool:
        """Whether the compiler moved registers of any kernel to memory."""
        return any(resources.spill_bytes > 0 for resources in self.resources)

    @property
    def doubtful(self) -> bool:
        """Whether it is a verdict that a second try may overturn, and there was none yet."""
        return self.outcome in DOUBTFUL and self.attempts == 1

    def to_json(self) -> dict[str, Any]:
        """Nested plain data; `from_json` reads it back."""
        data = asdict(self)
        if self.attempts == 1:  # as it was written before there were second tries
            del data["attempts"]
        if self.energy is None:  # likewise
            del data["energy"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Measurement":
        fields = dict(data)
        fields["outcome"] = Outcome(fields["outcome"])
        if fields.get("timing"):
            fields["timing"] = Timing(**fields["timing"])
        if fields.get("verification"):
            fields["verification"] = _verification(fields["verification"])
        if fields.get("measured_as"):
            fields["measured_as"] = Version(**fields["measured_as"])
        if fields.get("energy"):
            fields["energy"] = Energy(**fields["energy"])
        fields["resources"] = tuple(KernelResources(**item) for item in fields.get("resources", ()))
        return cls(**fields)


def _verification(data: Mapping[str, Any]) -> Verification:
    checks = tuple(
        OutputCheck(**{**item, "at": None if item.get("at") is None else tuple(item["at"])}) for item in data["checks"]
    )
    return Verification(**{**data, "checks": checks})
