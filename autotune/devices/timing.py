"""How often to repeat a timing, and when to stop: the part that needs no device."""

import math
import statistics
import time
from collections.abc import Callable, Sequence

from autotune.core.errors import LaunchError
from autotune.core.measurement import Timing
from autotune.devices.protocol import TimingBudget

_FEW = 3  # repeats after which a candidate that cannot win, or takes very long, is given up
_LONG_MS = 1000.0  # a run as long as this needs no warm-up and no repeat: what is cold in it does not show
_BATCH_MS = 2.0
_LARGEST_BATCH = 10
_OF_MEDIAN = 0.93  # standard error of a median of n normal values: this times their interquartile range / sqrt(n)

Sample = Callable[[int], Sequence[float]]
"""Run the plan this many times and return each run's milliseconds."""


def time_adaptively(sample: Sample, budget: TimingBudget, method: str) -> Timing:
    """Repeat until the median is stable, a limit of the budget is reached, or the candidate can no longer win.

    Raises:
        LaunchError: a run took no time at all, or no finite one: the device did not do the work.
    """
    start = time.monotonic()
    first = _checked(sample(1))[0]
    if first > _LONG_MS:
        return Timing("measured", first, first, first, first, 1, method)
    times: list[float] = []
    expected_ms = _warm_up(sample, budget, start, first)
    while not _enough(times, budget, time.monotonic() - start):
        wanted = max(1, min(_LARGEST_BATCH, int(_BATCH_MS / expected_ms), budget.max_repeats - len(times)))
        times += _checked(sample(wanted))
        expected_ms = statistics.median(times)
    q1, median, q3 = quartiles(times)
    return Timing("measured", median, q1, q3, min(times), len(times), method)


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile, by linear interpolation between the values."""
    if len(times) == 1:
        return times[0], times[0], times[0]
    q1, median, q3 = statistics.quantiles(times, n=4, method="inclusive")
    return q1, median, q3


def _warm_up(sample: Sample, budget: TimingBudget, start: float, took: float) -> float:
    """The runs after the first, which took `took` ms; what the last one took."""
    for _ in range(budget.warmup - 1):
        if time.monotonic() - start > budget.max_seconds:
            break
        took = _checked(sample(1))[0]
    return took


def _enough(times: Sequence[float], budget: TimingBudget, seconds: float) -> bool:
    repeats = len(times)
    if repeats >= budget.max_repeats:
        return True
    if repeats < min(_FEW, budget.min_repeats):
        return False
    if budget.give_up_above_ms is not None and min(times) > budget.give_up_above_ms:
        return True
    if repeats < budget.min_repeats:
        return seconds > 4 * budget.max_seconds
    q1, median, q3 = quartiles(times)
    error = _OF_MEDIAN * (q3 - q1) / math.sqrt(repeats)
    return error <= budget.relative_error * median or seconds > budget.max_seconds


def _checked(times: Sequence[float]) -> Sequence[float]:
    for value in times:
        if not 0.0 < value < float("inf"):
            raise LaunchError(f"the device reported a time of {value} ms; the kernels cannot have run")
    return times
