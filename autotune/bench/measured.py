"""What a comparison finds: times with their spread, errors, and what became of each contender; plain data."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from autotune.bench.contender import OURS
from autotune.bench.rounds import Timed
from autotune.core.dtypes import epsilon
from autotune.core.problem import Problem
from autotune.ops.registry import get_op


class Became(StrEnum):
    """What became of a contender on a problem."""

    OK = "ok"
    WRONG = "wrong"  # it has times, which count for nothing
    ABSENT = "absent"  # not on this machine
    UNSUPPORTED = "unsupported"  # it does not compute such problems, and was not called
    FAILED = "failed"  # it was called, and raised


@dataclass(frozen=True)
class Error:
    """Of one output: the largest absolute one, and the norm of all relative to that of the exact values.

    Both are infinite where any element is NaN or infinite.
    """

    largest: float
    relative: float


@dataclass(frozen=True)
class Spread:
    """A time: the median of all rounds, and the range from the rounds' least to their greatest quartile or value."""

    median: float
    low: float
    high: float

    @property
    def percent(self) -> float:
        """Half the range, relative to the median."""
        return 50.0 * (self.high - self.low) / self.median


@dataclass(frozen=True)
class Entry:
    """One contender on one problem.

    Attributes:
        reason: why there is no time, or why it counts for nothing.
        rounds: of those that were called and gave times.
        errors: of every output against float64.
        said: what the contender tells of itself.
    """

    name: str
    title: str
    became: Became
    reason: str = ""
    rounds: tuple[Timed, ...] = ()
    errors: Mapping[str, Error] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kernel(self) -> Spread | None:
        """Milliseconds on the GPU, from the rounds' medians and quartiles."""
        timings = [timed.kernel for timed in self.rounds]
        if not timings:
            return None
        median = statistics.median(timing.median_ms for timing in timings)
        return Spread(median, min(timing.q1_ms for timing in timings), max(timing.q3_ms for timing in timings))

    @property
    def call(self) -> Spread | None:
        """Microseconds that a call costs the host."""
        times = [timed.call_us for timed in self.rounds if timed.call_us is not None]
        return Spread(statistics.median(times), min(times), max(times)) if times else None

    @property
    def worst(self) -> tuple[str, Error] | None:
        """The output with the greatest relative error; NaN would be the greatest."""
        if not self.errors:
            return None
        return max(self.errors.items(), key=lambda item: (math.isnan(item[1].relative), item[1].relative))

    def to_json(self) -> dict[str, Any]:
        kernel, call = self.kernel, self.call
        return {
            "name": self.name, "title": self.title, "became": self.became.value, "reason": self.reason,
            "ms": kernel and kernel.median, "low_ms": kernel and kernel.low, "high_ms": kernel and kernel.high,
            "call_us": call and call.median, "low_call_us": call and call.low, "high_call_us": call and call.high,
            "rounds": [
                {"ms": timed.kernel.median_ms, "q1_ms": timed.kernel.q1_ms, "q3_ms": timed.kernel.q3_ms,
                 "repeats": timed.kernel.repeats, "call_us": timed.call_us}
                for timed in self.rounds
            ],
            "errors": {name: asdict(error) for name, error in self.errors.items()}, **self.said,
        }  # fmt: skip


@dataclass(frozen=True)
class Row:
    """All contenders on one problem. `checked` of `slices` (batch, key head) slices were compared with float64."""

    problem: Problem
    entries: tuple[Entry, ...]
    checked: int = 0
    slices: int = 0

    @property
    def ours(self) -> Entry | None:
        """Our own entry, if we took part."""
        return next((entry for entry in self.entries if entry.name == OURS), None)

    @property
    def flops(self) -> float:
        """By the op's count."""
        return get_op(self.problem.op).flops(self.problem)

    def tflops(self, entry: Entry) -> float | None:
        """Floating-point operations in 10^12 a second of the kernel's time."""
        return None if entry.kernel is None else self.flops / entry.kernel.median / 1e9

    def speed(self, entry: Entry) -> float | None:
        """An entry's time over ours: more than 1 where ours is faster. Only right results are compared."""
        ours = self.ours
        if ours is None or {ours.became, entry.became} != {Became.OK} or not (ours.kernel and entry.kernel):
            return None
        return entry.kernel.median / ours.kernel.median

    def to_json(self) -> dict[str, Any]:
        """Entries as objects, with what follows from their times."""
        return {
            "problem": self.problem.to_json(), "flops": self.flops, "checked": self.checked, "slices": self.slices,
            "contenders": [
                {**entry.to_json(), "tflops": self.tflops(entry), "over_ours": self.speed(entry)}
                for entry in self.entries
            ],
        }  # fmt: skip


def tolerance_of(dtype: str) -> float:
    """Allowed ||got - exact|| / ||exact||: five of the dtype's epsilons, in fp32 what products of tf32 parts need."""
    return max(5.12 * epsilon(dtype), 1e-4)


def complaint(errors: Mapping[str, Error], dtype: str) -> str | None:
    """Why outputs with these errors are wrong; None where they are right. NaN is never right, nor is no output."""
    if not errors:
        return "it gave no output"
    allowed = tolerance_of(dtype)
    for name, error in errors.items():
        if not (math.isfinite(error.largest) and math.isfinite(error.relative)):
            return f"{name} has elements that are NaN or infinite"
        if not error.relative <= allowed:
            return f"{name} is off by {error.relative:.2g} (||got - exact|| / ||exact||); {allowed:g} is allowed"
    return None


def fastest(entries: Sequence[Entry]) -> Entry | None:
    """The fastest of the right ones."""
    timed = [(entry.kernel.median, entry) for entry in entries if entry.became is Became.OK and entry.kernel]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None
