"""Results against references: every element of every unit, each by the bound of its row."""

import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.measurement import OutputCheck, Verification
from autotune.core.scratch import scratch
from autotune.ops.expected import Expectation
from autotune.ops.op import Bound, Op

_BLOCK = 1 << 17  # elements that are compared at once: their errors take a megabyte
_SHARES = 3  # of the work that each thread takes, so that one that waits for its core does not hold up all
_MATRIX = 2  # axes of what has rows

_Place = tuple[int, str, slice]
"""A unit, an output, rows of it."""


def compare_all(
    op: Op, expected: Expectation, got: Mapping[str, NDArray[Any]], arithmetic: str
) -> tuple[Verification, str]:
    """Every unit of the outputs `got`, in their logical shapes; the text says what is wrong, empty when nothing is."""

    def check(place: _Place) -> OutputCheck:
        index, name, rows = place
        unit = expected.units[expected.sources[index]]
        piece = _rows_of(op.unit(expected.problem, {name: got[name]}, index)[name], rows)
        bound = np.asarray(unit.bounds[arithmetic][name], np.float64)
        reference = _rows_of(unit.reference[name], rows)
        return located(compare(name, piece, reference, _rows_of(bound, rows)), got[name], piece)

    places = [
        (index, name, rows)
        for index, source in enumerate(expected.sources)
        for name, reference in expected.units[source].reference.items()
        if name in got
        for rows in _blocks(reference)
    ]
    threads = max(1, min(8, (os.cpu_count() or 1) // 2))
    shares = [places[first :: _SHARES * threads] for first in range(min(len(places), _SHARES * threads))]
    found: dict[str, list[OutputCheck]] = {name: [] for name in got}
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for of_share in pool.map(lambda share: [check(place) for place in share], shares):
            for one in of_share:
                found[one.name].append(one)
    checks = tuple(map(worst_of, found.values()))
    verification = Verification(expected.problem.key, checks, len(expected.sources), len(expected.sources))
    return verification, "; ".join(filter(None, map(describe, checks)))


def _blocks(reference: NDArray[np.float64]) -> list[slice]:
    """Rows of a unit that are compared at once: as many as stay in a core's cache from one pass to the next."""
    if reference.ndim < _MATRIX or reference.size <= _BLOCK:
        return [slice(None)]
    total = reference.shape[-2]
    rows = max(1, _BLOCK * total // reference.size)
    return [slice(first, first + rows) for first in range(0, total, rows)]


def _rows_of(array: NDArray[Any], rows: slice) -> NDArray[Any]:
    """A view of these rows, of an array that may have one row for all or none."""
    return array[..., rows, :] if array.ndim >= _MATRIX and array.shape[-2] != 1 else array


def compare(name: str, got: NDArray[Any], reference: NDArray[np.float64], bound: Bound) -> OutputCheck:
    """Every element of one output of one unit against the reference; the check is of the element that is worst.

    NaN and Inf count as `not_finite`, except where the reference has the same, or is beyond what the element type holds
    and the result is that infinity.
    """
    bounds = np.asarray(bound, np.float64)
    if got.size == 0:
        return OutputCheck(name, 0.0, float(bounds.max(initial=0.0)), 0)
    error = scratch("errors", got.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(got, reference, out=error, dtype=np.float64, casting="unsafe")
    np.abs(error, out=error)
    bad = 0
    if not np.isfinite(error.max()):  # NaN counts as the largest
        with np.errstate(over="ignore"):
            held = reference.astype(got.dtype).astype(np.float64)
        wrong = _not_finite(got.astype(np.float64), np.where(np.isfinite(held), reference, held))
        error[~np.isfinite(error)] = 0.0
        bad = int(wrong.sum())
    largest = float(error.max()) if bad else 0.0
    worst = int(np.argmax(wrong)) if bad else _furthest(error, bounds)
    at = tuple(int(axis) for axis in np.unravel_index(worst, got.shape))
    allowed = np.broadcast_to(bounds, got.shape)[at]
    found = largest if bad else _error_at(got, reference, at)
    return OutputCheck(name, found, float(allowed), bad, at)


def _furthest(error: NDArray[np.float64], bounds: NDArray[np.float64]) -> int:
    """Where an error exceeds its bound by the largest factor, or comes nearest to it. Overwrites the errors."""
    if bounds.ndim == 0:
        return int(np.argmax(error))
    if not bounds.all():  # where no error is allowed, none is no excess
        bounds = np.where(bounds == 0.0, np.nextafter(0.0, 1.0), bounds)
    with np.errstate(over="ignore"):
        np.divide(error, bounds, out=error)
    return int(np.argmax(error))


def _error_at(got: NDArray[Any], reference: NDArray[np.float64], at: tuple[int, ...]) -> float:
    """What `compare` counts as the error of one element: none where both are NaN, or the same infinity."""
    error = abs(float(got[at]) - float(reference[at]))
    return error if math.isfinite(error) else 0.0


def _not_finite(value: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.bool_]:
    same = (value == reference) | (np.isnan(value) & np.isnan(reference))
    return np.where(np.isfinite(reference), ~np.isfinite(value), ~same)


def describe(check: OutputCheck) -> str:
    """What is wrong with an output, or an empty text."""
    if check.passed:
        return ""
    if check.not_finite:
        return f"{check.name}: {check.not_finite} elements NaN or Inf, or not written; first at {check.at}"
    return f"{check.name}: error {check.max_abs_error:.3g} at {check.at}, bound {check.bound:.3g}"


def worst_of(checks: Sequence[OutputCheck]) -> OutputCheck:
    """Of one output's units the check that is nearest to its bound or furthest beyond; `not_finite` counts in all."""
    bad = sum(check.not_finite for check in checks)
    # An error counts by how far it exceeds its own unit's bound; a bound of 0 allows no error at all.
    worst = max(checks, key=lambda check: (check.not_finite, check.part_of_bound))
    return replace(worst, not_finite=bad)


def worse(one: Verification, other: Verification) -> Verification:
    """For each output the check that is nearer to its bound."""
    checks = tuple(
        max(pair, key=lambda check: check.part_of_bound) for pair in zip(one.checks, other.checks, strict=True)
    )
    return replace(one, checks=checks)


def joined(compared: Sequence[tuple[str, tuple[Verification, str]]]) -> tuple[Verification, str]:
    """What to say of several runs, each with what it is called: the first that is wrong, else the worst of all."""
    verification = compared[0][1][0]
    for label, (again, message) in compared:
        if message:
            return again, label + message
        verification = worse(verification, again)
    return verification, ""


def updated(verification: Verification, later: Verification | None) -> Verification:
    """With the checks of those outputs that were compared once more."""
    newer = {} if later is None else {check.name: check for check in later.checks}
    return replace(verification, checks=tuple(newer.get(check.name, check) for check in verification.checks))


def holds(storage: NDArray[Any], byte: int) -> NDArray[np.bool_]:
    """Which elements of a storage have this value in each of their bytes."""
    words = storage.view(f"u{storage.itemsize}")
    held: NDArray[np.bool_] = words == np.frombuffer(bytes([byte]) * storage.itemsize, words.dtype)[0]
    return held


def located(check: OutputCheck, whole: NDArray[Any], piece: NDArray[Any]) -> OutputCheck:
    """The check with `at` counted in the whole output rather than in the unit, when the unit is a view of it."""
    if check.at is None:
        return check
    offset = (
        piece.__array_interface__["data"][0]
        - whole.__array_interface__["data"][0]
        + sum(index * stride for index, stride in zip(check.at, piece.strides, strict=True))
    )
    at = _unravel(offset, whole)
    return check if at is None else replace(check, at=at)


def _unravel(offset: int, whole: NDArray[Any]) -> tuple[int, ...] | None:
    index = [0] * whole.ndim
    for axis in sorted(range(whole.ndim), key=lambda axis: -whole.strides[axis]):
        if whole.strides[axis] > 0 and whole.shape[axis] > 1:
            index[axis], offset = divmod(offset, whole.strides[axis])
    inside = offset == 0 and all(0 <= i < n for i, n in zip(index, whole.shape, strict=True))
    return tuple(index) if inside else None
