"""How many candidates are under way: as many as the device needs, no more."""

import random

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


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        ([2.0] * 30, 10),  # all at once, in ten measurements' time: until then the device lives on what is there
        ([1.0] * 12, 5),
        ([0.2 * k for k in range(1, 16)], KEPT),  # one a measurement
        ([0.4 * k for k in range(1, 8)], 8),  # every other measurement one
        ([0.0] * 5, 10),  # ready at any moment: five fewer
        ([9.0, 9.0], 15),  # later than what is asked now: of no help
    ],
)
def test_what_is_being_built_need_not_be_in_stock(left: list[float], kept: int) -> None:
    """A build takes 15 measurements, of 0.2 s."""
    assert enough_waiting(Spent(30.0, 10), Spent(4.0, 20), left) == kept


@pytest.mark.parametrize("seed", range(20))
def test_so_many_are_enough_and_fewer_are_not(seed: int) -> None:
    """Played through: the device takes one a second, until what is asked now is built."""
    rng = random.Random(seed)
    left = [rng.uniform(0.0, 40.0) for _ in range(rng.randrange(40))]

    def idle(stock: int) -> bool:
        for second in range(30):
            stock += sum(second - 1 < built <= second for built in left) - 1
            if stock < 0:
                return True
        return False

    kept = enough_waiting(Spent(300.0, 10), Spent(10.0, 10), left)
    assert kept is not None
    assert not idle(kept)
    assert kept == KEPT or idle(kept - 1)
