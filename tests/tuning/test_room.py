"""How many candidates are under way: as many as the device needs, no more."""

import pytest

from autotune.tuning.room import KEPT, Spent, enough_under_way, enough_waiting


@pytest.mark.parametrize(
    ("jobs", "build_s", "device_s", "enough"),
    [
        (16, 3.0, 0.1, 20),  # the device is fast: builds on all cores, and a few ahead
        (16, 3.0, 0.5, 14),
        (16, 3.0, 3.0, 5),  # the device is slow: hardly any ahead of it
        (64, 3.0, 0.5, 19),
        (1, 3.0, 0.1, 3),
        (16, 0.0, 0.5, 3),  # all from the cache
    ],
)
def test_by_how_long_builds_and_the_device_take(jobs: int, build_s: float, device_s: float, enough: int) -> None:
    assert enough_under_way(jobs, Spent(10 * build_s, 10), Spent(20 * device_s, 20)) == enough


@pytest.mark.parametrize(("jobs", "enough"), [(1, 3), (16, 20), (64, 32)])
@pytest.mark.parametrize(
    "known", [(Spent(9.0, 7), Spent(0.1, 9)), (Spent(9.0, 9), Spent(0.1, 7)), (Spent(9, 9), Spent(0, 9))]
)
def test_before_that_is_known(jobs: int, enough: int, known: tuple[Spent, Spent]) -> None:
    assert enough_under_way(jobs, *known) == enough


def test_what_waits_lasts_until_more_is_built() -> None:
    assert enough_waiting(Spent(30.0, 10), Spent(4.0, 20)) == 15
    assert enough_waiting(Spent(1.0, 10), Spent(4.0, 20)) == KEPT
    assert enough_waiting(Spent(30.0, 7), Spent(4.0, 20)) is None
    assert enough_waiting(Spent(30.0, 10), Spent(4.0, 7)) is None
