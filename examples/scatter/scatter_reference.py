"""What `scatter.cu.j2` computes, and what it is tried on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def scatter_add(problem: dict[str, Any], inputs: Arrays) -> Arrays:
    """Adds each row of `values` to the row of `table` that `index` names, and counts how often each is named."""
    table = inputs["table"].copy()
    np.add.at(table, inputs["index"], inputs["values"])
    return {"table": table, "counts": np.bincount(inputs["index"], minlength=problem["size"])}


def inputs(problem: dict[str, Any], seed: int) -> Arrays:
    """Rows of the table as indices, some of them far more often than others; the other tensors are random."""
    drawn = np.random.default_rng(seed).zipf(1.5, problem["rows"])
    return {"index": (drawn - 1) % problem["size"]}
