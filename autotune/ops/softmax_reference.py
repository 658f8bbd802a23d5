"""Row softmax and its gradient in NumPy: float64 references, and the same formulas with a kernel's rounding.

Arrays have shape (…, T, T_kv). Forward: P = softmax(scale·S) over the keys that a query sees, 0 for the others.
Backward, the chain rule through it: dS = scale·P∘(dP - rowsum(P∘dP)), 0 for keys that are not seen. What is not
seen is not read: it may hold anything, NaN too. Rows without a key are 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import rounded
from autotune.ops.matmul_reference import triangle

Array = NDArray[Any]


def softmax(scores: Array, scale: float, causal: bool, low_precision: str | None = None) -> NDArray[np.float64]:
    """P as float64 values. With `low_precision` the arithmetic is float32 and P is rounded to that dtype."""
    compute = np.dtype(np.float64 if low_precision is None else np.float32)
    x = np.where(_seen(scores, causal), compute.type(scale) * scores.astype(compute), -np.inf)
    peak = x.max(axis=-1, keepdims=True)
    p = np.exp(x - np.where(np.isneginf(peak), 0, peak))
    total = p.sum(axis=-1, keepdims=True)
    return _finished(p / np.where(total == 0, 1, total), low_precision)


def backward(
    weights: Array, d_weights: Array, scale: float, causal: bool, low_precision: str | None = None
) -> NDArray[np.float64]:
    """dS as float64 values. With `low_precision` the arithmetic is float32 and dS is rounded to that dtype."""
    compute = np.dtype(np.float64 if low_precision is None else np.float32)
    seen = _seen(weights, causal)
    p = np.where(seen, weights.astype(compute), compute.type(0))
    dp = np.where(seen, d_weights.astype(compute), compute.type(0))
    ds = compute.type(scale) * p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    return _finished(ds, low_precision)


def hidden_as_nan(array: Array) -> Array:
    """The same with NaN where a causal mask hides a key from a query."""
    return np.where(_seen(array, causal=True), array, np.array(np.nan, array.dtype))


def _seen(array: Array, causal: bool) -> NDArray[np.bool_]:
    T, T_kv = array.shape[-2:]
    return triangle("lower", T, T_kv) if causal else np.ones((T, T_kv), np.bool_)


def _finished(array: Array, low_precision: str | None) -> NDArray[np.float64]:
    return (array if low_precision is None else rounded(array, low_precision)).astype(np.float64)
