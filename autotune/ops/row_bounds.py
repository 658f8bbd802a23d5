"""Error bounds by row: one bound for a whole head is too wide for most of its rows.

The last key's dV is a thousandth of the first one's; scores in the hundreds round a thousand times as much as scores
near one. So each row has a size (what its sums round by) and a noise (what rounding on the way makes of it).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS = 16
"""Rows that share the largest error of a low-precision result: a single row may be lucky."""

SLACK = 32 * 2.0**-23
"""The bound's absolute part, relative to the largest reference: 32 fp32 roundings of a long accumulation."""

_NEGLIGIBLE = 2.0**-32
"""Of an output's largest element: what is smaller may vanish, since a product of tiny factors does in fp32."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RowScale:
    """Of one output, by row: `size` is multiplied with a dtype's rounding, `noise` is absolute."""

    size: Floats
    noise: Floats


def bound_rows(factor: float, rounded: Floats, exact: Floats, roundoff: float, scale: RowScale) -> Floats:
    """factor·max(error of the low-precision result in `ROWS` rows, roundoff·size) + SLACK·size + noise, and a little.

    A row's size counts as no less than its largest element. Results have shape (…, T, HS) or (…, T), scales (…, T);
    the bound's shape goes with the results': (…, T, 1) or (…, T).
    """
    with np.errstate(invalid="ignore"):
        error = np.abs(rounded - exact)
    by_element = exact.ndim > scale.size.ndim
    error, largest = _largest(error, by_element), _largest(np.abs(exact), by_element)
    size = np.maximum(scale.size, largest)
    bound = factor * np.maximum(_block_maxima(error), roundoff * size) + SLACK * size + scale.noise
    bound += _NEGLIGIBLE * largest.max(initial=0.0)
    widened: Floats = bound[..., None] if by_element else bound
    return widened


def _largest(sizes: Floats, by_element: bool) -> Floats:
    """Of each row, where results have one element or many a row; overwrites `sizes`. What is no number counts as 0."""
    if not np.isfinite(sizes.max(initial=0.0)):  # NaN counts as the largest
        sizes[~np.isfinite(sizes)] = 0.0
    largest: Floats = sizes.max(axis=-1) if by_element else sizes
    return largest


def _block_maxima(rows: Floats) -> Floats:
    """For each of the last axis' elements the largest of its block."""
    starts = np.arange(0, rows.shape[-1], ROWS)
    maxima = np.maximum.reduceat(rows, starts, axis=-1)
    spread: Floats = np.repeat(maxima, np.diff([*starts, rows.shape[-1]]), axis=-1)
    return spread
