"""Reference of the op that `faults.cu.j2` and `greedy.cu.j2` declare."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def lower_half(problem: dict[str, Any], inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Half of x on and below the diagonal, 0 above."""
    return np.tril(inputs["x"] * 0.5)
