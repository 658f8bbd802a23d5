"""Distances between the values of a parameter."""

import numpy as np
import pytest

from autotune.tuning.distances import distances


def test_what_has_no_size_is_equal_or_not() -> None:
    found = distances([("x", "y", "z"), (False, True), (4,), (1, 2)])
    assert [distance.column for distance in found] == [0, 1, 3]  # of one value nothing differs
    assert found[0].table.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


def test_sizes_are_as_far_apart_as_their_logarithms() -> None:
    equal, apart = distances([(8, 2, 32)])
    assert equal.table.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert apart.table.tolist() == [[0, 0.5, 0.5], [0.5, 0, 1], [0.5, 1, 0]]


def test_zero_is_a_factor_of_two_below_one() -> None:
    _, apart = distances([(0, 1, 4)])
    np.testing.assert_allclose(apart.table[0], [0, 1 / 3, 1])


def test_negative_numbers_are_ranked() -> None:
    _, apart = distances([(5, -100, 0)])
    assert apart.table.tolist() == [[0, 1, 0.5], [1, 0, 0.5], [0.5, 0.5, 0]]


def test_many_sizes_differ_by_their_factors_of_two_also() -> None:
    *_, twos = distances([(32, 48, 64, 80, 96)])  # 5, 4, 6, 4, 5 factors
    assert twos.table[0].tolist() == [0, 0.5, 0.5, 0.5, 0]
    assert twos.table[1].tolist() == [0.5, 0, 1, 0, 0.5]


@pytest.mark.parametrize("values", [(1, 3, 5, 7, 9), (1, 2, 4, 8, 16), (16, 17, 18)])
def test_factors_of_two_that_say_nothing_new_are_left_out(values: tuple[int, ...]) -> None:
    assert len(distances([values])) == 2


@pytest.mark.parametrize("values", [(0.0, float("inf"), 2.0), (1, True, 2), (1, "2", 3), (None, 1, 2)])
def test_what_is_not_all_sizes_has_no_order(values: tuple[object, ...]) -> None:
    assert len(distances([values])) == 1
