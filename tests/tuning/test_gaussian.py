"""The Gaussian process: it learns which parameters matter, and is surest where it knows most."""

import math

import numpy as np
import pytest

from autotune.tuning.distances import distances
from autotune.tuning.gaussian import Process, log_improvement, one_hot

CARDS = np.array([4, 5, 3])
KINDS = distances(["abcd", "abcde", "abc"])


def grid() -> np.ndarray:
    return np.stack(np.unravel_index(np.arange(60), CARDS), axis=1)


def test_a_row_has_a_column_for_each_value() -> None:
    ones = one_hot(np.array([[3, 0, 2]]), CARDS, np.array([1.0, 2.0, 3.0]))
    assert ones.tolist() == [[0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3]]


def test_it_learns_which_parameter_matters() -> None:
    rows = grid()
    values = np.array([2.0, -1.0, 0.5, -1.5])[rows[:, 0]]
    known = np.random.default_rng(0).permutation(60)[:25]
    process = Process(CARDS, KINDS)
    process.fit(rows[known], values[known], len(known))
    rest = np.setdiff1d(np.arange(60), known)
    means, deviations, _ = process.predict(rows[rest], rows[known], values[known], rows[:0])
    np.testing.assert_allclose(means, values[rest], atol=0.1)
    assert float(deviations.max()) < 0.3


def test_it_learns_that_sizes_near_each_other_are_alike() -> None:
    sizes = tuple(range(8, 136, 8))
    rows = np.stack(np.unravel_index(np.arange(32), (16, 2)), axis=1)
    values = np.abs(np.log2(sizes) - 5.5)[rows[:, 0]] - 1.0
    known = np.flatnonzero(rows[:, 0] % 2 == rows[:, 1])  # every size once
    odd = known[np.isin(rows[known, 0], [3, 6, 9, 12], invert=True)]
    rest = np.flatnonzero(np.isin(rows[:, 0], [3, 6, 9, 12]))
    errors = []
    for kinds in (distances([sizes, "ab"]), distances([tuple(map(str, sizes)), "ab"])):
        process = Process(np.array([16, 2]), kinds)
        process.fit(rows[odd], values[odd], len(odd))
        means, _, _ = process.predict(rows[rest], rows[odd], values[odd], rows[:0])
        errors.append(float(np.abs(means - values[rest]).max()))
    assert errors[0] < 0.15
    assert errors[1] > 0.3


def test_what_is_under_way_narrows_what_is_like_it_and_moves_no_mean() -> None:
    rows = grid()
    process = Process(CARDS, KINDS)
    known, values = rows[[0, 30]], np.array([-1.0, 1.0])
    means, before, _ = process.predict(rows, known, values, rows[:0])
    same, after, hopes = process.predict(rows, known, values, rows[[59]])
    np.testing.assert_allclose(means, same, atol=1e-5)
    assert hopes.tolist() == pytest.approx([means[59]], abs=1e-5)
    assert after[59] < 0.2 * before[59]
    assert np.all(after <= before + 1e-4)


def test_predictions_are_those_of_one_matrix_of_all_that_is_known_and_under_way() -> None:
    """Against the textbook's formula; with what was kept from an earlier call and without."""
    rows, rng = grid(), np.random.default_rng(1)
    process = Process(CARDS, KINDS)
    order = rng.permutation(60)
    known, pending, rest = rows[order[:20]], rows[order[20:26]], rows[order[26:]]
    values = rng.normal(size=20)
    process.fit(known, values, 20)
    weights = np.exp(process._logs)
    both = np.concatenate([known, pending])

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        apart = [kind.table[a[:, kind.column][:, None], b[:, kind.column][None, :]] for kind in KINDS]
        return np.exp(-np.tensordot(weights[:-1], np.array(apart), 1))

    full = kernel(both, both) + weights[-1] * np.eye(26)
    weighed = np.linalg.solve(full[:20, :20], values)
    across = kernel(rest, both)
    explained = np.einsum("ij,ij->i", across @ np.linalg.inv(full), across)
    for _ in range(2):
        means, deviations, hopes = process.predict(rest, known, values, pending)
        np.testing.assert_allclose(means, across[:, :20] @ weighed, atol=1e-3)
        np.testing.assert_allclose(hopes, full[20:, :20] @ weighed, atol=1e-3)
        np.testing.assert_allclose(deviations, np.sqrt(float(values @ weighed) / 20 * (1 - explained)), atol=2e-3)
        process.predict(rest, known[:10], values[:10], pending[:1])
    other, _, _ = process.predict(rest, known, -values, pending)
    np.testing.assert_allclose(other, -means, atol=1e-6)


def test_weights_are_fitted_again_when_much_more_is_known() -> None:
    process, rows = Process(CARDS, KINDS), grid()
    values = np.random.default_rng(0).normal(size=60)
    assert process.due(3)
    process.fit(rows[:50], values[:50], 50)
    assert [process.due(known) for known in (50, 54, 55, 60)] == [False, False, True, True]
    before, _, _ = process.predict(rows, rows[:50], values[:50], rows[:0])
    process.fit(rows, values, 60)
    after, _, _ = process.predict(rows, rows[:50], values[:50], rows[:0])
    assert not np.allclose(before, after, atol=1e-4)


def test_nothing_known_is_all_open() -> None:
    means, deviations, _ = Process(CARDS, KINDS).predict(grid(), grid()[:0], np.zeros(0), grid()[:0])
    assert means.tolist() == [0.0] * 60
    np.testing.assert_allclose(deviations, 1.0)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [(0.0, 1 / math.sqrt(2 * math.pi)), (-1.0, 1.0833155), (2.0, 0.0084907), (4.2, 3.0e-6)],
)
def test_the_expected_improvement(mean: float, expected: float) -> None:
    """Of a normal value with this mean and deviation 1 below 0."""
    [found] = log_improvement(0.0, np.array([mean]), np.array([1.0]))
    assert math.exp(found) == pytest.approx(expected, rel=0.15 if mean > 4 else 1e-3)


def test_far_off_improvements_are_still_told_apart() -> None:
    found = log_improvement(0.0, np.array([5.0, 50.0, 500.0]), np.ones(3))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) < 0)
