"""Results against references: every element of every unit, each by the bound of its row."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.measurement import OutputCheck, Verification
from autotune.ops.expected import Expectation
from autotune.ops.op import Bound, Op


def compare_all(
    op: Op, expected: Expectation, got: Mapping[str, NDArray[Any]], arithmetic: str
) -> tuple[Verification, str]:
    """Every unit of all outputs, in their logical shapes; the text says what is wrong, empty when nothing is."""

    def check(index: int) -> dict[str, OutputCheck]:
        unit = expected.units[expected.sources[index]]
        bound = unit.bounds[arithmetic]
        piece = op.unit(expected.problem, dict(got), index)
        return {
            name: located(compare(name, piece[name], reference, bound[name]), got[name], piece[name])
            for name, reference in unit.reference.items()
        }

    with ThreadPoolExecutor(max_workers=max(1, min(8, (os.cpu_count() or 1) // 2))) as pool:
        per_unit = list(pool.map(check, range(len(expected.sources))))
    checks = tuple(worst_of([unit[name] for unit in per_unit]) for name in got)
    verification = Verification(expected.problem.key, checks, len(per_unit), len(expected.sources))
    return verification, "; ".join(filter(None, map(describe, checks)))


def compare(name: str, got: NDArray[Any], reference: NDArray[np.float64], bound: Bound) -> OutputCheck:
    """Every element of one output of one unit against the reference; the check is of the element that is worst.

    NaN and Inf count as `not_finite`, except where the reference has the same, or is beyond what the element type holds
    and the result is that infinity.
    """
    bounds = np.asarray(bound, np.float64)
    if got.size == 0:
        return OutputCheck(name, 0.0, float(bounds.max(initial=0.0)), 0)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.subtract(got, reference, dtype=np.float64, casting="unsafe")
    np.abs(error, out=error)
    bad = 0
    if not np.isfinite(error.max()):  # NaN counts as the largest
        with np.errstate(over="ignore"):
            held = reference.astype(got.dtype).astype(np.float64)
        wrong = _not_finite(got.astype(np.float64), np.where(np.isfinite(held), reference, held))
        error[~np.isfinite(error)] = 0.0
        bad = int(wrong.sum())
    worst = int(np.argmax(wrong)) if bad else _furthest(error, bounds)
    at = tuple(int(axis) for axis in np.unravel_index(worst, got.shape))
    allowed = np.broadcast_to(bounds, got.shape)[at]
    return OutputCheck(name, float(error.max() if bad else error[at]), float(allowed), bad, at)


def _furthest(error: NDArray[np.float64], bounds: NDArray[np.float64]) -> int:
    """Where an error exceeds its bound by the largest factor, or comes nearest to it."""
    if bounds.ndim == 0:
        return int(np.argmax(error))
    by_row = bounds.shape[-1] == 1 and error.shape[-1] != 1
    largest = error.max(axis=-1, keepdims=True) if by_row else error
    with np.errstate(divide="ignore", invalid="ignore"):
        excess: NDArray[np.float64] = np.where(largest == 0.0, 0.0, largest / bounds)
    row = int(np.argmax(excess))
    if by_row:
        width: int = error.shape[-1]
        row = row * width + int(np.argmax(error.reshape(-1, width)[row]))
    return row


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
