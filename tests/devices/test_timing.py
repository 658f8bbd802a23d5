from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import pytest

from autotune.core.errors import LaunchError
from autotune.devices.protocol import TimingBudget
from autotune.devices.timing import quartiles, time_adaptively


class Device:
    """Plays a list of times, then its last one for ever."""

    def __init__(self, *times: float) -> None:
        self.batches: list[int] = []
        self._times: Iterator[float] = chain(times, repeat(times[-1]))

    def __call__(self, repeats: int) -> Sequence[float]:
        self.batches.append(repeats)
        return [next(self._times) for _ in range(repeats)]


def test_a_steady_time_needs_the_least_repeats() -> None:
    timing = time_adaptively(Device(5.0), TimingBudget(min_repeats=7), "events")
    assert (timing.kind, timing.method, timing.repeats) == ("measured", "events", 7)
    assert (timing.median_ms, timing.q1_ms, timing.q3_ms, timing.min_ms) == (5.0, 5.0, 5.0, 5.0)


def test_warm_up_runs_do_not_count() -> None:
    timing = time_adaptively(Device(90.0, 80.0, 5.0), TimingBudget(warmup=2), "events")
    assert timing.median_ms == 5.0
    assert timing.q3_ms == 5.0


def test_median_and_quartiles() -> None:
    device = Device(3.0, 3.0, *(float(value) for value in (1, 2, 3, 4, 5, 6, 7)))
    timing = time_adaptively(device, TimingBudget(min_repeats=7, max_repeats=7), "events")
    assert (timing.min_ms, timing.q1_ms, timing.median_ms, timing.q3_ms) == (1.0, 2.5, 4.0, 5.5)


def test_a_restless_time_is_repeated_up_to_the_limit() -> None:
    device = Device(*([5.0, 9.0] * 100))
    assert time_adaptively(device, TimingBudget(max_repeats=40, max_seconds=60), "events").repeats == 40


def test_it_stops_once_the_median_is_stable() -> None:
    device = Device(5.0, 5.0, *([9.0, 5.0] * 4), *([5.0] * 100))
    repeats = time_adaptively(device, TimingBudget(max_seconds=60), "events").repeats
    assert 8 < repeats < 40


@pytest.mark.parametrize(("error", "least", "most"), [(0.0035, 20, 40), (0.0015, 130, 190)])
def test_repeats_follow_from_how_exact_the_median_is_to_be(error: float, least: int, most: int) -> None:
    device = Device(*(1.0 + 0.01 * (number * 7 % 5 - 2) for number in range(2000)))  # quartiles 2 % apart
    repeats = time_adaptively(device, TimingBudget(max_seconds=60, relative_error=error), "events").repeats
    assert least <= repeats <= most


def test_what_cannot_win_is_given_up_after_three() -> None:
    timing = time_adaptively(Device(5.0), TimingBudget(give_up_above_ms=4.0), "events")
    assert timing.repeats == 3
    assert timing.min_ms == 5.0


def test_a_run_of_a_second_is_enough() -> None:
    timing = time_adaptively(Device(1300.0), TimingBudget(), "events")
    assert (timing.repeats, timing.q1_ms, timing.q3_ms) == (1, 1300.0, 1300.0)


def test_what_might_win_is_not_given_up() -> None:
    timing = time_adaptively(Device(5.0, 5.0, 5.0, 3.9, 5.0), TimingBudget(give_up_above_ms=4.0), "events")
    assert timing.repeats >= 7


def test_short_runs_are_queued_together_and_long_ones_one_by_one() -> None:
    short, long = Device(0.1), Device(50.0)
    time_adaptively(short, TimingBudget(), "events")
    time_adaptively(long, TimingBudget(), "events")
    assert short.batches == [1, 1, 10]
    assert long.batches == [1] * 9


def test_no_budget_of_time_still_gives_a_median() -> None:
    device = Device(*([5.0, 9.0] * 100))
    assert time_adaptively(device, TimingBudget(max_seconds=0.0), "events").repeats == 3


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("before", [0, 4])
def test_a_time_that_cannot_be_one(bad: float, before: int) -> None:
    with pytest.raises(LaunchError, match="the kernels cannot have run"):
        time_adaptively(Device(*[5.0] * before, bad), TimingBudget(), "events")


def test_quartiles_of_one_value() -> None:
    assert quartiles([2.0]) == (2.0, 2.0, 2.0)
