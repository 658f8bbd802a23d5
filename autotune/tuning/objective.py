"""What a search wants: the fastest, the one that takes the least energy, or all that nothing beats in both."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from autotune.core.arguments import require_positive
from autotune.core.errors import UsageError
from autotune.core.measurement import Energy, Measurement, Verification
from autotune.core.outcome import Outcome

ENERGY_S = 0.5
"""Seconds of back to back runs that one look at a candidate's energy takes; a counter moves some ten times a second."""

LEAST_S, MOST_S = 0.2, 60.0

_FLOOR = 0.75
"""No candidate is taken to draw less than this part of the least power seen so far: what cannot win at that is left."""

Figures = tuple[float, float]
"""Milliseconds and millijoules of a call."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Objective:
    """`weights` are those of log(energy) beside log(time), one for each study that guides the search."""

    name: str
    weights: tuple[float, ...] = (0.0,)

    @property
    def metered(self) -> bool:
        """Whether energies are measured."""
        return self.weights != (0.0,)

    @property
    def several(self) -> bool:
        """Whether there is no single best."""
        return len(self.weights) > 1

    @property
    def slack(self) -> float:
        """What is slower than the fastest may take less energy: so much further off it is still timed to the end."""
        return 1.0 / _FLOOR if self.metered else 1.0

    def cost(self, figures: Figures) -> float:
        """What is minimised; with several objectives the time."""
        ms, mj = figures
        return {"energy": mj, "edp": ms * mj}.get(self.name, ms)

    def worth(self, ms: float, known: Sequence[Figures]) -> bool:
        """Whether a candidate may still win by its energy: with the least power that it can be taken to draw.

        With several objectives: whether it may be one that no other beats in both.
        """
        if not known:
            return True
        mj = ms * _FLOOR * min(taken / took for took, taken in known)
        if self.several:
            return not any(took <= ms and taken <= mj for took, taken in known)
        return self.cost((ms, mj)) < min(map(self.cost, known))


TIME = Objective("time")
OBJECTIVES = {
    objective.name: objective
    for objective in (
        TIME, Objective("energy", (1.0,)), Objective("edp", (0.5,)), Objective("time,energy", (0.0, 0.5, 1.0)),
    )
}  # fmt: skip
"""By what users call them. `edp` is the energy-delay product."""


def find_objective(text: str) -> Objective:
    """The objective that a text names; the order of several does not matter.

    Raises:
        UsageError: there is none of this name.
    """
    parts = text.lower().split(",") if isinstance(text, str) else ()
    name = ",".join(sorted((part.strip() for part in parts), reverse=True))
    if name not in OBJECTIVES:
        raise UsageError(f"objective {text!r} is none; choose from {' | '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def require_error(max_error: float | None) -> None:
    """Raise UsageError for what is no part of an error bound; None is no limit."""
    if max_error is not None:
        require_positive("max_error", max_error, "the part of the error bound that may be used")


@dataclass(frozen=True)
class Demand:
    """What is asked of candidates beside being right.

    `max_error`: the part of the error that is allowed (`Verification.part_of_bound`) which a candidate may have.
    """

    objective: Objective = TIME
    max_error: float | None = None
    energy_s: float = ENERGY_S

    def complaint(self, verification: Verification | None) -> str:
        """Why a right candidate is not feasible; empty where it is."""
        if self.max_error is None or verification is None:
            return ""
        error = verification.part_of_bound
        if error <= self.max_error:  # NaN is not
            return ""
        return f"its error is {error:.3g} of the bound, more than --max-error {self.max_error:g}"

    def judged(self, measurement: Measurement) -> Measurement:
        """The measurement, or where it is right and not feasible one that says so. The database keeps the first one."""
        said = self.complaint(measurement.verification) if measurement.outcome is Outcome.OK else ""
        return replace(measurement, outcome=Outcome.INFEASIBLE, message=said, energy=None) if said else measurement


PLAIN = Demand()


@dataclass
class Metered:
    """The figures of the candidates whose energy is known, and with them which others are worth a measurement."""

    objective: Objective
    known: list[Figures] = field(default_factory=list)

    def note(self, ms: float, energy: Energy) -> None:
        self.known.append((ms, energy.mj))

    def worth(self, ms: float) -> bool:
        return self.objective.metered and self.objective.worth(ms, self.known)


class Scale:
    """Turns a measurement into the value that a study minimises, by the weight of log(energy) in it.

    A candidate without an energy is taken to draw what the first one with one did: the search has found that it cannot
    win, or has not measured any yet.
    """

    def __init__(self) -> None:
        self._first: float | None = None

    def value(self, log_ms: float | None, measurement: Measurement, weight: float) -> float | None:
        """log(time) + weight * log(power over the first power)."""
        mj, ms = measurement.mj, measurement.ms
        if log_ms is None or weight == 0.0 or mj is None or ms is None:
            return log_ms
        power = math.log(mj / ms)
        self._first = power if self._first is None else self._first
        return log_ms + weight * (power - self._first)


def front(items: Iterable[Item], figures: Callable[[Item], Figures]) -> list[Item]:
    """Those that no other beats in one figure without losing in the other, fastest first; of equals the first."""
    kept: list[Item] = []
    for item in sorted(items, key=figures):
        if not kept or figures(item)[1] < figures(kept[-1])[1]:
            kept.append(item)
    return kept
