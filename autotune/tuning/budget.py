"""When a search ends."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """Limits of a search. `trials` counts those of earlier runs of the same search; None: no limit.

    `least`: trials that are made even when the time is up. `grace_s`: seconds for what is nearly finished then.
    """

    trials: int | None = None
    timeout_s: float | None = None
    least: int = 0
    grace_s: float = 5.0


@dataclass
class Clock:
    """Time since the search began."""

    budget: Budget
    start: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    @property
    def left(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self.budget.timeout_s is None else max(0.0, self.budget.timeout_s - self.elapsed)

    @property
    def expired(self) -> bool:
        return self.left == 0.0
