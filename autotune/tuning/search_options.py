"""How to search: what a user may choose, checked."""

import os
from dataclasses import dataclass

from autotune.core.arguments import is_number, require_flags, require_whole
from autotune.core.errors import UsageError
from autotune.devices.factory import DeviceOpener
from autotune.tuning.budget import Budget
from autotune.tuning.objective import LEAST_S, MOST_S, PLAIN, Demand, require_error
from autotune.tuning.samplers import require_sampler

CANDIDATE_LIMIT_S = 20.0

_UNLEARNED = frozenset(("grid", "random"))
"""Samplers that no result changes, and that begin with nothing in particular."""

LARGEST_SEED = 2**32 - 1
"""That NumPy and Optuna take."""


@dataclass(frozen=True)
class Options:
    """How to search. None takes the device's default: on the emulator 40 trials or 150 s, on a GPU 100 trials.

    `final`: whether the fastest are timed once more before one is named the winner. `spills`: whether the winner may
    be a kernel whose registers spill into memory. `quick`: only the few candidates that are likely to be good, those
    of earlier runs not among them, whatever `trials` is. `demand`: what is minimised, and within which error.
    """

    trials: int | None = None
    timeout_s: float | None = None
    sampler: str = "parzen"
    seed: int = 0
    jobs: int | None = None
    limit_s: float = CANDIDATE_LIMIT_S
    final: bool = True
    spills: bool = True
    quick: bool = False
    demand: Demand = PLAIN

    def checked(self) -> "Options":
        """These options.

        Raises:
            UsageError: an unknown sampler, a number below what makes sense, or what is none.
        """
        require_sampler(self.sampler)
        require_whole("seed", self.seed, 0, LARGEST_SEED)
        for name, value in (("trials", self.trials), ("jobs", self.jobs)):
            if value is not None:
                require_whole(name, value, 1, LARGEST_SEED)
        require_flags(spills=self.spills, quick=self.quick)
        if self.quick and self.trials is not None:
            raise UsageError(f"--quick chooses its few candidates itself: leave out --trials {self.trials}, or --quick")
        if self.timeout_s is not None and not (is_number(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"timeout={self.timeout_s!r} must be more than 0 seconds, and finite")
        require_error(self.demand.max_error)
        seconds = self.demand.energy_s
        if not is_number(seconds) or not LEAST_S <= seconds <= MOST_S:
            raise UsageError(f"energy_seconds={seconds!r} must be {LEAST_S} to {MOST_S}: counters of energy are slow")
        return self

    @property
    def learns(self) -> bool:
        """Whether results change what is asked; then the families' starts come first."""
        return self.sampler not in _UNLEARNED

    @property
    def builds(self) -> int:
        """Builds at a time."""
        return self.jobs or os.cpu_count() or 1

    def budget(self, opener: DeviceOpener) -> Budget:
        """Trials and time; a grid is walked to its end unless told otherwise."""
        if self.sampler == "grid" or self.trials is not None or self.timeout_s is not None:
            return Budget(self.trials, self.timeout_s)
        return Budget(40, 150.0) if opener.estimates else Budget(100, None)
