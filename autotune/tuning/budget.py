"""When a search ends."""

import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Budget:
    """Limits of a search. `trials` counts those of earlier runs of the same search; None: no limit.

    `least`: trials that are made even when the time is up. `grace_s`: seconds for what is nearly finished then, but no
    more than a tenth of the time.
    """

    trials: int | None = None
    timeout_s: float | None = None
    least: int = 0
    grace_s: float = 5.0

    @property
    def end_s(self) -> float | None:
        """Seconds after which what is still under way is dropped; None without a limit."""
        return None if self.timeout_s is None else self.timeout_s + min(self.grace_s, self.timeout_s / 10)


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

    def has(self, seconds: float) -> bool:
        """Whether something that takes so long fits into what is left."""
        return self.left is None or (self.left > 0.0 and seconds <= self.left)

    @property
    def expired(self) -> bool:
        return self.left == 0.0
