"""A Gaussian process over configurations: what a time is likely to be, from times that are known.

Two configurations are as alike as their parameters are near: the kernel is exp(-Σ w·d) over all distances d of all
parameters (`distances`), with a weight w for each, which is fitted (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, chapters 2 and 5). So it is learnt from the times whether the order of a parameter's values says
anything, or only which of them are equal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.tuning.distances import Distance

Rows = NDArray[np.int64]
"""Configurations, a row each: the position of every parameter's value in its list."""

_LEAST, _MOST = math.log(1e-4), math.log(20.0)  # of weights and noise
_PRIOR, _DOUBT = math.log(0.3), 1.5  # logarithm of a weight: mean, standard deviation
_NOISE = math.log(0.01)  # of a value, in variances of all
_FIRST, _NEXT = 30, 8  # steps of a fit from nothing, and from the one before
_GROWN = 1.08  # so many times more values: weights are fitted again


def one_hot(rows: Rows, cards: NDArray[np.int64], worth: NDArray[np.float64] | float = 1.0) -> NDArray[np.float32]:
    """Rows of zeros, with each parameter's `worth` in the column of its value. Shape: rows, sum of `cards`."""
    ones = np.zeros((len(rows), int(cards.sum())), dtype=np.float32)
    ones[np.arange(len(rows))[:, None], np.cumsum(cards) - cards + rows] = worth
    return ones


@dataclass(frozen=True)
class _Known:
    """What all predictions from the same rows by the same weights have in common."""

    rows: Rows
    far: NDArray[np.float32]
    inverse: NDArray[np.float64]


class Process:
    """The process of one branch. Rows and values are given with each call; the weights stay, and grow with them."""

    def __init__(self, cards: NDArray[np.int64], distances: Sequence[Distance]) -> None:
        self._cards = cards
        self._distances = distances
        self._mean = np.full(len(distances) + 1, _PRIOR)
        self._mean[-1] = _NOISE
        self._logs = self._mean.copy()  # of the weights, and last of the noise
        self._fitted = 0
        self._last: _Known | None = None

    def due(self, known: int) -> bool:
        """Whether there are so many more values than at the last fit that weights are worth fitting again."""
        return known >= _GROWN * self._fitted + 1

    def fit(self, rows: Rows, values: NDArray[np.float64], known: int) -> None:
        """Weights that make the values likely; of `known` values those given are a part.

        Gradient ascent (Adam) on the posterior of their logarithms, the variance of the values profiled out.
        """
        count, x = len(rows), self._logs
        apart = self._apart(rows)
        first, second, eye = np.zeros_like(x), np.zeros_like(x), np.eye(count)
        for step in range(1, 1 + (_NEXT if self._fitted else _FIRST)):
            weights = np.exp(x)
            kernel = np.exp(-(weights[:-1].astype(np.float32) @ apart)).reshape(count, count).astype(np.float64)
            inverse = np.linalg.inv(kernel + weights[-1] * eye)
            explained = np.asarray(inverse @ values, dtype=np.float64)
            outer = np.outer(explained, explained) / _variance(values, explained) - inverse
            slope = np.empty_like(x)
            slope[:-1] = -0.5 * weights[:-1] * (apart @ (outer * kernel).ravel().astype(np.float32))
            slope[-1] = 0.5 * weights[-1] * np.trace(outer)
            slope -= (x - self._mean) / _DOUBT**2
            first, second = 0.8 * first + 0.2 * slope, 0.95 * second + 0.05 * slope**2
            x = x + 0.15 * first / (1 - 0.8**step) / (np.sqrt(second / (1 - 0.95**step)) + 1e-3)
            x = np.clip(x, _LEAST, _MOST)
        self._logs, self._fitted, self._last = x, known, None

    def predict(
        self, rows: Rows, known: Rows, values: NDArray[np.float64], pending: Rows
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Means and standard deviations at `rows`, and means at `pending`.

        What is pending narrows the deviations around it, which needs no value (Desautels et al., Parallelizing
        Exploration-Exploitation Tradeoffs in Gaussian Process Bandit Optimization, 2014).
        """
        told = self._of(known)
        explained = told.inverse @ values
        across = one_hot(rows, self._cards) @ told.far
        np.exp(-across, out=across)
        taken = np.einsum("ij,ij->i", across @ told.inverse.astype(np.float32), across)
        means, hopes = across @ explained, np.zeros(0)
        if len(pending):
            ones = one_hot(pending, self._cards)
            far = self._far(ones)
            beside = np.exp(-(ones @ told.far).astype(np.float64))
            hopes = beside @ explained
            # the inverse of a matrix of blocks: what the pending ones explain beyond what the known ones do
            given = told.inverse @ beside.T
            own = self._kernel(ones, far) - beside @ given
            beyond = np.exp(-(one_hot(rows, self._cards) @ far)) - across @ given.astype(np.float32)
            taken += np.einsum("ij,ij->i", beyond @ np.linalg.inv(own).astype(np.float32), beyond)
        deviations = np.sqrt(_variance(values, explained) * np.maximum(1.0 - taken.astype(np.float64), 1e-6))
        return means, deviations, hopes

    def _of(self, known: Rows) -> _Known:
        """For these rows, computed anew only where rows or weights are others than the last time."""
        if self._last is None or not np.array_equal(self._last.rows, known):
            ones = one_hot(known, self._cards)
            far = self._far(ones)
            inverse = np.linalg.inv(self._kernel(ones, far))
            self._last = _Known(known.copy(), far, np.asarray(inverse, dtype=np.float64))
        return self._last

    def _kernel(self, ones: NDArray[np.float32], far: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of rows with each other, noise included."""
        kernel = np.exp(-(ones @ far).astype(np.float64))
        kernel[np.diag_indices(len(ones))] += math.exp(self._logs[-1])
        return np.asarray(kernel, dtype=np.float64)

    def _apart(self, rows: Rows) -> NDArray[np.float32]:
        """Every distance between every two rows. Shape: distances, rows squared."""
        apart = np.empty((len(self._distances), len(rows), len(rows)), dtype=np.float32)
        for out, distance in zip(apart, self._distances, strict=True):
            column = rows[:, distance.column]
            out[:] = distance.table.astype(np.float32)[column[:, None], column[None, :]]
        return apart.reshape(len(apart), -1)

    def _far(self, ones: NDArray[np.float32]) -> NDArray[np.float32]:
        """How far every value of every parameter is from each of the rows: with one-hot rows on its left the exponents
        of the kernel. Shape: sum of cards, rows."""
        ends = np.cumsum(self._cards)
        tables = np.zeros((int(ends[-1]), int(ends[-1])), dtype=np.float32)  # blocks along the diagonal
        for distance, weight in zip(self._distances, np.exp(self._logs[:-1]), strict=True):
            block = slice(int(ends[distance.column] - self._cards[distance.column]), int(ends[distance.column]))
            tables[block, block] += (weight * distance.table).astype(np.float32)
        return np.asarray(tables @ ones.T, dtype=np.float32)


def _variance(values: NDArray[np.float64], explained: NDArray[np.float64]) -> float:
    return max(float(values @ explained) / len(values), 1e-9) if len(values) else 1.0


def log_improvement(best: float, means: NDArray[np.float64], deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the expected improvement over `best`, where less is better; finite also where it is tiny."""
    z = (best - means) / deviations
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    near = np.log(np.maximum(z * _below(z) + density, 1e-300))
    far = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - 2.0 * np.log(np.maximum(-z, 1.0))
    return np.asarray(np.where(z > -4.0, near, far) + np.log(deviations), dtype=np.float64)


def _below(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normal distribution function within 1e-7 (Abramowitz and Stegun, 1964, 7.1.26)."""
    x = np.abs(z) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(0.5 * (1.0 + np.sign(z) * (1.0 - series * np.exp(-x * x))), dtype=np.float64)
