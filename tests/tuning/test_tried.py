"""What the process is made of where there are more trials than it looks at."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution

from autotune.tuning.tried import Branch, Tried

CARDS = (30, 40)


def tried(count: int) -> Tried:
    """So many trials, each tenth failed, in a random order."""
    values = {name: tuple(f"{name}{i}" for i in range(card)) for name, card in zip("AB", CARDS, strict=True)}
    branch = Branch(
        values, {name: CategoricalDistribution(choices) for name, choices in values.items()},
        lambda rng, count: rng.integers(0, CARDS, (count, 2)), lambda rows: np.ones(len(rows), dtype=bool),
    )  # fmt: skip
    made, rng = Tried(branch), np.random.default_rng(0)
    for place in rng.permutation(1200)[:count].tolist():
        row = [place // 40, place % 40]
        made.add(row, math.inf if place % 10 == 0 else float(sum(row)) / 30.0)
    return made


def scaled(made: Tried) -> NDArray[np.float64]:
    return np.minimum(made.values, 3.0) - 1.0


def inverted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of matrices that are inverted from now on."""
    sizes: list[int] = []
    invert = np.linalg.inv

    def counted(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        sizes.append(len(matrix))
        return np.asarray(invert(matrix))

    monkeypatch.setattr(np.linalg, "inv", counted)
    return sizes


def test_the_best_are_looked_at_and_others_by_lots_that_stay() -> None:
    made, rng = tried(600), np.random.default_rng(1)
    values, told = scaled(made), np.arange(600)
    first = made._looked_at(told, values, rng, anew=True)
    assert len(np.unique(first)) == 256
    fast = np.sort(values)[127]
    assert set(np.flatnonzero(values < fast)) <= set(first)
    assert made._looked_at(told, values, rng, anew=False).tolist() == first.tolist()
    again = made._looked_at(told, values, rng, anew=True)
    assert 128 <= len(np.intersect1d(first, again)) < 230  # of others some 35 of 128 are the same


def test_trials_since_the_last_fit_take_part_in_the_lots() -> None:
    made, rng = tried(600), np.random.default_rng(1)
    made._looked_at(np.arange(600), scaled(made), rng, anew=True)
    for place in range(200):
        made.add([place % 30, place % 40], 3.0)
    looked = made._looked_at(np.arange(800), scaled(made), rng, anew=False)
    assert 15 < int((looked >= 600).sum()) < 60  # 128 of 672, of which 200 are new


def test_lots_go_with_their_trials_when_one_is_taken_out() -> None:
    made, rng = tried(600), np.random.default_rng(1)
    made._looked_at(np.arange(600), scaled(made), rng, anew=True)
    lots, rows = made._lots[:600].copy(), made.rows.copy()
    assert made.remove(5) == 599
    assert made._lots[5] == lots[599]
    assert made.rows[5].tolist() == rows[599].tolist()


@pytest.mark.parametrize("count", [100, 600])
def test_nothing_is_inverted_again_until_something_is_told(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, rng = tried(count), np.random.default_rng(2)
    rows, size = made.of.draw(rng, 50), min(count, 256)
    first = made.expected(rows, scaled(made), rng)
    sizes = inverted(monkeypatch)
    second = made.expected(rows, scaled(made), rng)
    np.testing.assert_array_equal(first.means, second.means)
    assert not sizes
    made.add([1, 1], math.nan)  # under way: a matrix of its own
    made.expected(rows, scaled(made), rng)
    assert sizes == [1]
    made._values[made.count - 1] = -2.0
    told = made.expected(rows, scaled(made), rng)
    assert sizes == [1, size + (count < 256)]
    assert told.best < second.best
