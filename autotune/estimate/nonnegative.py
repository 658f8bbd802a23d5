"""Least squares with unknowns that are not negative."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PIVOTS = 100
_PATIENCE = 3  # exchanges of whole sets without progress before single ones


def nonnegative_least_squares(matrix: Array, wanted: Array) -> Array:
    """The x >= 0 with the least |matrix @ x - wanted|, of full column rank. Deterministic.

    Block principal pivoting: Kim and Park, "Toward faster nonnegative matrix factorization" (2008), started from the
    unconstrained solution, which is near where few unknowns are 0.
    """
    free = np.ones(matrix.shape[1], dtype=bool)
    scale = float(np.abs(matrix.T @ wanted).max(initial=1e-300))
    fewest, patience = matrix.shape[1] + 1, _PATIENCE
    x = np.zeros(matrix.shape[1])
    for _ in range(_PIVOTS):
        x[:] = 0.0
        x[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
        slope = matrix.T @ (matrix @ x - wanted)
        wrong = (free & (x < -1e-9)) | (~free & (slope < -1e-7 * scale))
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        patience -= 1
        free ^= wrong if patience >= 0 else _last(wrong)
    return np.maximum(x, 0.0)


def _last(wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    only = np.zeros_like(wrong)
    only[np.flatnonzero(wrong)[-1]] = True
    return only
