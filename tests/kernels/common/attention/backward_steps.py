"""What a step of the backward pass is to make of S and dP, in float64."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LOG2_E = 1.4426950408889634


class Step(NamedTuple):
    """P and dS, and what they add to the gradients; rows are queries."""

    p: NDArray[np.float64]
    ds: NDArray[np.float64]


def operands(seed: int, queries: int, keys: int, HS: int) -> dict[str, NDArray[Any]]:
    """q and dout of queries, k and v of keys, and two sums of each query: an origin in base 2, and a delta."""
    rng = np.random.default_rng(seed)
    shapes = {"q": queries, "dout": queries, "k": keys, "v": keys}
    made: dict[str, NDArray[Any]] = {
        name: rng.standard_normal((n, HS)).astype(np.float16) for name, n in shapes.items()
    }
    made["sums"] = np.stack([rng.uniform(2, 6, queries), rng.standard_normal(queries)], axis=1).astype(np.float32)
    return made


def step_of(x: dict[str, NDArray[Any]], scale: float, visible: NDArray[np.bool_]) -> Step:
    """By the definition, from operands as they are."""
    q, dout, k, v = (x[name].astype(np.float64) for name in ("q", "dout", "k", "v"))
    origin, delta = (x["sums"][:, i, None].astype(np.float64) for i in range(2))
    p = np.where(visible, np.exp2(q @ k.T * scale * LOG2_E - origin), 0.0)
    return Step(p, p * (dout @ v.T - delta))


def assert_product(got: NDArray[Any], a: NDArray[Any], b: NDArray[Any], start: float = 0.0) -> None:
    """start + a b, where `a` has been rounded to 16 bits, once or twice."""
    b = b.astype(np.float64)
    error = np.abs(got - (start + a @ b))
    assert (error <= 2.0**-10 * (np.abs(a) @ np.abs(b)) + 1e-3).all(), error.max()
