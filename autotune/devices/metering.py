"""How energy is measured: a kernel is repeated back to back while a gauge is read. The part that needs no GPU.

A gauge moves some ten times a second, so the run begins and ends at moments when it has just moved, with the GPU at
work before and after: what is counted is work of the same time. On what sampled power misses: Burtscher, Zecena and
Zong, Measuring GPU Power with the K20 Built-in Sensor, 2014.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.core.errors import DeviceRefused
from autotune.core.measurement import Energy

BATCH_MS = 10.0
"""Work that is queued between two looks at the gauge."""

_MOST_CALLS = 2000  # of a batch
_STILL_S = 5.0  # after which a gauge that has not moved is broken
_IDLE_S, _PAUSE_S, _NAP_S = 0.5, 0.3, 0.005

Clock = Callable[[], float]


class Gauge(Protocol):
    """Tells how much energy a GPU has taken."""

    method: str
    settle_s: float
    """Under load before its readings are those of the load."""

    def read(self) -> float | None:
        """Millijoules since some moment; None where it cannot tell."""


class Counter:
    """The GPU's own counter of energy."""

    method = "NVML energy counter"
    settle_s = 0.25

    def __init__(self, energy_mj: Callable[[], int | None]) -> None:
        self._energy_mj = energy_mj

    def read(self) -> float | None:
        return self._energy_mj()


class Integrated:
    """Sampled power over time, where there is no counter; drivers may average it over a second."""

    method = "NVML power, integrated"
    settle_s = 1.2

    def __init__(self, power_w: Callable[[], float | None], clock: Clock = time.perf_counter) -> None:
        self._power_w, self._clock = power_w, clock
        self._total = 0.0
        self._last: tuple[float, float] | None = None

    def read(self) -> float | None:
        power, now = self._power_w(), self._clock()
        if power is None:
            return None
        if self._last is not None:
            before, watts = self._last
            self._total += 1e3 * (now - before) * (power + watts) / 2
        self._last = now, power
        return self._total


@dataclass(frozen=True)
class _Window:
    mj: float
    seconds: float
    rounds: int  # of work


def batch_of(call_ms: float) -> int:
    """How many calls to queue at a time."""
    return max(1, min(_MOST_CALLS, int(BATCH_MS / call_ms)))


def energy_of(
    run: Callable[[int], None], call_ms: float, gauge: Gauge, seconds: float, clock: Clock = time.perf_counter
) -> Energy:
    """What a call takes, from a run of at least so many seconds.

    Args:
        run: executes so many calls, one right after the other, and waits for their end.
        call_ms: about what a call takes.

    Raises:
        LaunchError: what `run` raises.
        DeviceRefused: the gauge says nothing, or does not move.
    """
    calls = batch_of(call_ms)
    start = clock()
    while clock() - start < gauge.settle_s:
        run(calls)
    window = _watched(lambda: run(calls), gauge, seconds, clock)
    made = window.rounds * calls
    return Energy(
        mj=window.mj / made, power_w=window.mj / window.seconds / 1e3, call_ms=1e3 * window.seconds / made, calls=made,
        seconds=window.seconds, method=gauge.method,
    )  # fmt: skip


def idle_power_w(gauge: Gauge, clock: Clock = time.perf_counter, sleep: Callable[[float], None] = time.sleep) -> float:
    """Watts that are drawn with nothing to do, with the clocks as the last work has left them.

    Raises:
        DeviceRefused: the gauge says nothing, or does not move.
    """
    sleep(max(_PAUSE_S, gauge.settle_s))
    window = _watched(lambda: sleep(_NAP_S), gauge, _IDLE_S, clock)
    return window.mj / window.seconds / 1e3


def middle(found: Sequence[Energy]) -> Energy:
    """Of several runs the one with the median energy."""
    return next(one for one in found if one.mj == statistics.median_low([energy.mj for energy in found]))


def _watched(work: Callable[[], None], gauge: Gauge, seconds: float, clock: Clock) -> _Window:
    """Energy, time and rounds between two moves of the gauge that are at least so many seconds apart."""
    first, start, _ = _to_move(work, gauge, clock)
    rounds = 0
    while clock() - start < seconds:
        work()
        rounds += 1
    last, end, more = _to_move(work, gauge, clock)
    return _Window(last - first, end - start, rounds + more)


def _to_move(work: Callable[[], None], gauge: Gauge, clock: Clock) -> tuple[float, float, int]:
    """Work until the gauge moves: its reading, the moment, and the rounds."""
    before, start, rounds = _read(gauge), clock(), 0
    while True:
        work()
        rounds += 1
        reading, now = _read(gauge), clock()
        if reading != before:
            return reading, now, rounds
        if now - start > _STILL_S:
            raise DeviceRefused(
                f"the GPU's {gauge.method} has stood still for {_STILL_S:.0f} s of work: no energy can be measured "
                "here; search with --objective time"
            )


def _read(gauge: Gauge) -> float:
    reading = gauge.read()
    if reading is None:
        raise DeviceRefused(f"the GPU's {gauge.method} says nothing any more: search with --objective time")
    return reading
