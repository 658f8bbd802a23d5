"""What a climb finds: each version's best times, and what follows from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autotune.core.problem import Problem
from autotune.gpus.spec import DeviceSpec
from autotune.ladder.parts import Part
from autotune.ladder.peers import Peers
from autotune.ladder.versions import PUBLISHED_GPU, Ladder, Version
from autotune.ops.registry import get_op
from autotune.tuning.result import Ranked


@dataclass(frozen=True)
class Timed:
    """A part of a version with the fastest kernel found for it."""

    part: Part
    problem: Problem
    best: Ranked
    trials: int

    @property
    def ms(self) -> float:
        """Milliseconds of all its launches together."""
        return self.part.count * self.best.ms

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.part.name,
            "count": self.part.count,
            "problem": self.problem.to_json(),
            "template": self.best.candidate.template,
            "config": self.best.candidate.config,
            "ms": self.best.ms,
            "trials": self.trials,
            "record_id": self.best.record_id,
        }


@dataclass(frozen=True)
class Rung:
    """A version as tuned; `skipped` says why it has no time."""

    version: Version
    own: Timed | None = None
    shared: tuple[Timed, ...] = ()
    skipped: str = ""

    @property
    def ms(self) -> float | None:
        """Milliseconds of the whole pass: the version's own kernel and those it shares with others."""
        return None if self.own is None else self.own.ms + sum(timed.ms for timed in self.shared)

    def roofline(self, spec: DeviceSpec) -> float | None:
        """Share (0 to 1) of the speed at which its own kernel's flops and compulsory bytes allow it to run."""
        return None if self.own is None else least_ms(self.own.problem, spec) / self.own.best.ms


@dataclass(frozen=True)
class Climb:
    """A ladder climbed. `estimated`: times are modelled for the device `spec`, none was measured."""

    ladder: Ladder
    problem: Problem
    spec: DeviceSpec
    estimated: bool
    rungs: tuple[Rung, ...]
    seconds: float
    database: str
    interrupted: bool = False
    peers: Peers = Peers()  # noqa: RUF009 - frozen

    def factors(self) -> Iterator[tuple[float | None, float | None]]:
        """For each rung how many times faster it is than the one before, and than the first; None where unknown."""
        first = before = None
        for rung in self.rungs:
            ms = rung.ms
            if ms is None:
                yield None, None
                continue
            yield (None if before is None else before / ms), (None if first is None else first / ms)
            first, before = first or ms, ms

    @property
    def first_ms(self) -> float | None:
        """The time of the first version that has one."""
        return next((rung.ms for rung in self.rungs if rung.ms is not None), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.ladder.op,
            "problem": self.problem.to_json(),
            "device": self.spec.name,
            "device_title": self.spec.title,
            "kind": "estimated" if self.estimated else "measured",
            "published_on": PUBLISHED_GPU,
            "published_peers": dict(self.ladder.peers_published),
            "peers": self.peers.to_json(),
            "versions": [self._rung(rung, *factors) for rung, factors in zip(self.rungs, self.factors(), strict=True)],
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "database": self.database,
        }

    def _rung(self, rung: Rung, before: float | None, first: float | None) -> dict[str, Any]:
        own = rung.own
        return {
            "version": rung.version.name,
            "idea": rung.version.idea,
            "ms": rung.ms,
            "factor_before": before,
            "factor_first": first,
            "own_ms": own and own.ms,
            "gbs": own and own.best.gbs,
            "roofline": rung.roofline(self.spec),
            "published_ms": rung.version.published_ms,
            "own": own and own.to_json(),
            "shared": [timed.to_json() for timed in rung.shared],
            "skipped": rung.skipped or None,
        }


def least_ms(problem: Problem, spec: DeviceSpec) -> float:
    """Milliseconds that a problem takes at least: for its flops at the peak rate, or its bytes at full bandwidth.

    The peak is that of the tensor cores for 16-bit operands, half of it for tf32, of fp32 otherwise.
    """
    op = get_op(problem.op)
    peak = spec.fp32_tflops if problem.dtype == "fp32" else spec.tensor_tflops
    if problem.fields.get("arithmetic") == "tf32":
        peak = spec.tensor_tflops / 2
    return 1e3 * max(op.flops(problem) / (peak * 1e12), op.nbytes(problem) / (spec.bandwidth_gbs * 1e9))
