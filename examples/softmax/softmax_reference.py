"""What the row softmax must compute."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def row_softmax(problem: dict[str, Any], inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:  # noqa: ARG001
    """exp(x) / sum(exp(x)) along each row of `x`, in the precision of `x`."""
    x = inputs["x"]
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    result: NDArray[Any] = weights / weights.sum(axis=1, keepdims=True)
    return result
