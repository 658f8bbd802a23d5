"""The trials of one branch of a search space, in arrays; what is like them, and what they let expect."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution

from autotune.tuning.distances import distances
from autotune.tuning.gaussian import Process, Rows, one_hot

EQUAL = 0.5
"""Weight of a member's own value in a density; the rest is spread over all values of the parameter."""

_MOST_TOLD = 256  # trials that the process is made of
_MOST_WAITING = 64  # and of those under way


@dataclass(frozen=True)
class Branch:
    """Parameters that occur together, with the values of each, and which of their combinations are valid.

    `draw(rng, count)`: up to `count` random valid rows, none twice. `holds(rows)`: which are valid.
    """

    values: Mapping[str, tuple[Any, ...]]
    distributions: Mapping[str, BaseDistribution]
    draw: Callable[[np.random.Generator, int], Rows]
    holds: Callable[[Rows], NDArray[np.bool_]]


@dataclass(frozen=True)
class Expected:
    """Of rows: mean and standard deviation of the value of each; and the least value that is known or expected.

    `pending`: places of trials under way, `hopes`: the means of their values.
    """

    means: NDArray[np.float64]
    deviations: NDArray[np.float64]
    best: float
    pending: NDArray[np.int64]
    hopes: NDArray[np.float64]


class Tried:
    """The trials of one branch, in arrays that grow: rows and values (NaN: under way, infinite: failed)."""

    def __init__(self, branch: Branch) -> None:
        self.of = branch
        self.cards = np.array([len(values) for values in branch.values.values()], dtype=np.int64)
        self._places = [{value: i for i, value in enumerate(values)} for values in branch.values.values()]
        self._primes = np.random.default_rng(0).integers(1, 2**63, len(self.cards), dtype=np.uint64) | np.uint64(1)
        self._rows = np.zeros((64, len(self.cards)), dtype=np.int64)
        self._values = np.zeros(64)
        self._lots = np.zeros(64)
        self._chance = np.random.default_rng(1)
        self._process = Process(self.cards, distances(tuple(branch.values.values())))
        self.count = 0

    @property
    def rows(self) -> Rows:
        return self._rows[: self.count]

    @property
    def values(self) -> NDArray[np.float64]:
        return self._values[: self.count]

    def row(self, parameters: Mapping[str, Any]) -> list[int] | None:
        """The row of these parameters; None where they are not all of this branch."""
        try:
            return [p[parameters[name]] for name, p in zip(self.of.values, self._places, strict=True)]
        except KeyError:
            return None

    def add(self, row: Sequence[int], value: float) -> int:
        """Enter a trial; gives its place."""
        if self.count == len(self._values):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
            self._lots = np.concatenate([self._lots, np.zeros_like(self._lots)])
        self._rows[self.count], self._values[self.count] = row, value
        self._lots[self.count] = self._chance.random()
        self.count += 1
        return self.count - 1

    def finish(self, place: int, value: float) -> None:
        self._values[place] = value

    def remove(self, place: int) -> int:
        """Take a trial out; the last one moves to its place. Gives the place where that was."""
        self.count -= 1
        for column in (self._rows, self._values, self._lots):
            column[place] = column[self.count]
        return self.count

    def untried(self, rows: Rows) -> Rows:
        """The distinct rows that no trial has had."""
        keys, first = np.unique(self._hashes(rows), return_index=True)
        return rows[first[np.isin(keys, self._hashes(self.rows), invert=True)]]

    def neighbours(self, places: NDArray[np.int64]) -> Rows:
        """All valid rows that differ in one value from a trial at these places."""
        found = [np.zeros((0, len(self.cards)), dtype=np.int64)]
        for column, card in enumerate(self.cards.tolist()):
            near = np.repeat(self.rows[places], card, axis=0)
            near[:, column] = np.tile(np.arange(card), len(places))
            found.append(near)
        rows = np.concatenate(found)
        return rows[self.of.holds(rows)]

    def density(self, rows: Rows, members: NDArray[np.int64]) -> NDArray[np.float32]:
        """For each row, summed over the members: the product over parameters of 0.5·[equal] + 0.5/cardinality.

        Computed as exponentials of one matrix product: the logarithm of what equality is worth, over one-hot rows.
        """
        rest = (1.0 - EQUAL) / self.cards
        worth = np.log((EQUAL + rest) / rest)
        ones = one_hot(self.rows[members], self.cards, worth)
        exponents = one_hot(rows, self.cards) @ ones.T + np.float32(np.log(rest).sum())
        return np.asarray(np.exp(exponents, out=exponents).sum(axis=1), dtype=np.float32)

    def expected(
        self, rows: Rows, values: NDArray[np.float64], rng: np.random.Generator, *, waiting: bool = True
    ) -> Expected:
        """What a process says of rows, from the scaled values of this branch's trials (NaN: under way).

        It looks at a limited number: the best half, and random others.
        """
        told = np.flatnonzero(~np.isnan(values))
        pending = np.flatnonzero(np.isnan(values))[-_MOST_WAITING:] if waiting else told[:0]
        known = len(told)
        due = known > 2 and self._process.due(known)
        if known > _MOST_TOLD:
            told = self._looked_at(told, values, rng, anew=due)
        mean = float(values[told].sum()) / (len(told) + 2.0)  # as if two were as good as those of other branches
        y = values[told] - mean
        if due:
            self._process.fit(self.rows[told], y, known)
        means, deviations, hopes = self._process.predict(rows, self.rows[told], y, self.rows[pending])
        best = float(min([*y.tolist(), *hopes.tolist()], default=math.inf)) + mean
        return Expected(means + mean, deviations, best, pending, hopes + mean)

    def _looked_at(
        self, told: NDArray[np.int64], values: NDArray[np.float64], rng: np.random.Generator, *, anew: bool
    ) -> NDArray[np.int64]:
        """The best half of what the process looks at, and others by lot; `anew`: lots are drawn again.

        Between two fits lots stay, so that most asks find what was computed for the one before.
        """
        if anew:
            self._lots[: self.count] = rng.random(self.count)
        half = _MOST_TOLD // 2
        order = np.argpartition(values[told], half - 1)
        rest = told[order[half:]]
        drawn = rest[np.argpartition(self._lots[rest], half - 1)[:half]]
        return np.sort(np.concatenate([told[order[:half]], drawn]))

    @property
    def uniform(self) -> float:
        """The density of a member that may be anywhere in this branch."""
        return float(np.exp(-np.log(self.cards).sum()))

    def _hashes(self, rows: Rows) -> NDArray[np.uint64]:
        hashes: NDArray[np.uint64] = (rows.astype(np.uint64) + np.uint64(1)) @ self._primes
        return hashes
