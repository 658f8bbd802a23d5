"""Attention in NumPy: the float64 reference, and the same formulas with a kernel's rounding.

Arrays have shape (B, NH, T, HS), keys (B, NH_kv, T_kv, HS); values, out and its gradient have HS_v columns.
Forward: S = scale·QKᵀ, P = softmax(S), O = PV.
Backward (Dao et al., FlashAttention, appendix B): P = exp(S - LSE), dV = PᵀdO, dP = dOVᵀ,
D = rowsum(dO∘O), dS = P∘(dP - D), dQ = scale·dS·K, dK = scale·dSᵀ·Q. Rows without a key give 0 and LSE = -inf.
Sums go over visible pairs: what a query does not see does not change it, even if it is NaN or infinite.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.arithmetic import FULL
from autotune.core.dtypes import rounded
from autotune.ops.tf32_products import multiply_tf32x3

Arrays = dict[str, NDArray[Any]]
Product = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
_THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))
_ROWS = 512
"""Query rows at a time: bounds the memory of a score matrix."""
_PRODUCTS: Mapping[str, Product] = {FULL: np.matmul, "tf32x3": multiply_tf32x3}


def forward(
    inputs: Arrays, causal: bool, scale: float, low_precision: str | None = None, arithmetic: str = FULL
) -> Arrays:
    """`out` (B, NH, T, HS_v) and `lse` (B, NH, T) as float64 values.

    With `low_precision` sums are float32, and P and out are rounded to that dtype; `arithmetic` says how products are
    computed then (`autotune.core.arithmetic`).
    """
    if shares_keys(inputs, causal):
        return heads_apart(forward(heads_together(inputs), causal, scale, low_precision, arithmetic), inputs)
    compute = np.float64 if low_precision is None else np.float32
    product = _PRODUCTS[arithmetic]
    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    out, lse = np.zeros((*q.shape[:3], v.shape[3])), np.full(q.shape[:3], -np.inf)

    def one_head(place: tuple[int, int, int]) -> None:
        b, h, kv = place
        keys, values = k[b, kv].astype(compute), v[b, kv].astype(compute)
        for rows, seen in row_blocks(q.shape[2], k.shape[2], causal):
            with np.errstate(invalid="ignore"):
                dots = product(q[b, h, rows].astype(compute), keys[:seen].T)
            scores = masked_scores(dots, scale, causal, rows, q.shape[2], k.shape[2])
            visible = _visible(rows, seen, q.shape[2], k.shape[2], causal)
            out[b, h, rows], lse[b, h, rows] = _softmax_times(scores, values[:seen], visible, low_precision, product)

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:  # NumPy lets go of the interpreter while it computes
        list(pool.map(one_head, heads(q, k)))
    return {"out": out if low_precision is None else rounded(out, low_precision), "lse": lse}


def _softmax_times(
    scores: NDArray[Any],
    values: NDArray[Any],
    visible: NDArray[np.bool_],
    low_precision: str | None,
    product: Product,
) -> tuple[Any, Any]:
    """One block's out and lse; rows of -inf alone give 0 and -inf."""
    if scores.shape[1] == 0:
        return 0.0, -np.inf
    peak = scores.max(axis=1, keepdims=True)
    peak[np.isneginf(peak)] = 0
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - peak)
    p[~visible] = 0
    total = p.sum(axis=1, keepdims=True)
    if low_precision is not None:
        p = rounded(p, low_precision)
    safe = np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return _sum_over_keys(p, values, visible, product) / safe, (peak + np.log(total))[:, 0]


def backward(
    inputs: Arrays, causal: bool, scale: float, low_precision: str | None = None, arithmetic: str = FULL
) -> Arrays:
    """`dq` (B, NH, T, HS), `dk` (B, NH_kv, T_kv, HS) and `dv` (B, NH_kv, T_kv, HS_v) as float64 values.

    With `low_precision` sums are float32, and P, dS and the results are rounded to that dtype; `arithmetic` as in
    `forward`.
    """
    if shares_keys(inputs, causal):
        return heads_apart(backward(heads_together(inputs), causal, scale, low_precision, arithmetic), inputs)
    compute = np.float64 if low_precision is None else np.float32
    product = _PRODUCTS[arithmetic]
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    with np.errstate(invalid="ignore"):
        delta = (inputs["dout"].astype(compute) * inputs["out"].astype(compute)).sum(axis=-1)
    grads = {"dq": np.zeros(q.shape, compute), "dk": np.zeros(k.shape, compute), "dv": np.zeros(v.shape, compute)}
    for b, h, kv in heads(q, k):
        keys, values = k[b, kv].astype(compute), v[b, kv].astype(compute)
        for rows, seen in row_blocks(q.shape[2], k.shape[2], causal):
            queries, dout = q[b, h, rows].astype(compute), inputs["dout"][b, h, rows].astype(compute)
            with np.errstate(invalid="ignore"):
                dots = product(queries, keys[:seen].T)
            scores = masked_scores(dots, scale, causal, rows, q.shape[2], k.shape[2])
            visible = _visible(rows, seen, q.shape[2], k.shape[2], causal)
            p = _probabilities(scores, inputs["lse"][b, h, rows].astype(compute))
            with np.errstate(invalid="ignore"):
                ds = p * (product(dout, values[:seen].T) - delta[b, h, rows, None])
            p[~visible], ds[~visible] = 0, 0
            if low_precision is not None:
                p, ds = rounded(p, low_precision), rounded(ds, low_precision)
            grads["dv"][b, kv, :seen] += _sum_over_keys(p.T, dout, visible.T, product)
            grads["dk"][b, kv, :seen] += scale * _sum_over_keys(ds.T, queries, visible.T, product)
            grads["dq"][b, h, rows] = scale * _sum_over_keys(ds, keys[:seen], visible, product)
    finish = (lambda a: a) if low_precision is None else (lambda a: rounded(a, low_precision))
    return {name: finish(grad).astype(np.float64) for name, grad in grads.items()}


def _sum_over_keys(
    weights: NDArray[Any], rows: NDArray[Any], visible: NDArray[np.bool_], product: Product
) -> NDArray[Any]:
    """weights·rows, each row of the result from the rows that it sees: hidden weights are 0, and 0·NaN would be NaN."""
    odd = ~np.isfinite(rows).all(axis=1)
    result = product(weights, np.where(odd[:, None], rows.dtype.type(0), rows))
    with np.errstate(invalid="ignore"):
        for row in np.flatnonzero(odd):
            sees = visible[:, row]
            result[sees] += np.outer(weights[sees, row], rows[row])
    return result


def _visible(rows: slice, seen: int, T: int, T_kv: int, causal: bool) -> NDArray[np.bool_]:
    """Which of the first `seen` keys each query of a block sees."""
    queries = np.arange(T)[rows]
    if not causal:
        return np.ones((len(queries), seen), dtype=np.bool_)
    visible: NDArray[np.bool_] = np.arange(seen)[None, :] <= queries[:, None] + (T_kv - T)
    return visible


def _probabilities(scores: NDArray[Any], lse: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):
        p: NDArray[Any] = np.exp(np.minimum(scores - lse[:, None], 0))  # no more than 1: the log-sum-exp is rounded
    p[np.isneginf(lse)] = 0
    return p


def shares_keys(inputs: Arrays, causal: bool) -> bool:
    """Whether `heads_together` has something to bring together."""
    return not causal and inputs["q"].shape[1] != inputs["k"].shape[1]


def heads_together(inputs: Arrays) -> Arrays:
    """Without a mask, the query heads of a key head are rows of one head, (B, NH_kv, NH/NH_kv·T, …), so that its keys
    and values are read and converted once: of a step of decoding they are nearly all there is."""
    B, NH_kv = inputs["k"].shape[:2]
    return {n: a if n in ("k", "v") else a.reshape(B, NH_kv, -1, *a.shape[3:]) for n, a in inputs.items()}


def heads_apart(results: Arrays, inputs: Arrays) -> Arrays:
    """What was computed of `heads_together(inputs)`, with the query heads that `inputs` have."""
    rows = inputs["q"].shape[:3]
    return {n: a if n in ("dk", "dv") else a.reshape(*rows, *a.shape[3:]) for n, a in results.items()}


def heads(q: NDArray[Any], k: NDArray[Any]) -> Iterator[tuple[int, int, int]]:
    """(batch, query head, key head) for all query heads."""
    group = q.shape[1] // k.shape[1]
    return ((b, h, h // group) for b in range(q.shape[0]) for h in range(q.shape[1]))


def row_blocks(T: int, T_kv: int, causal: bool) -> Iterator[tuple[slice, int]]:
    """Blocks of query rows, each with how many keys its last row sees."""
    for start in range(0, T, _ROWS):
        stop = min(start + _ROWS, T)
        yield slice(start, stop), max(0, min(T_kv, stop + T_kv - T)) if causal else T_kv


def masked_scores(dots: NDArray[Any], scale: float, causal: bool, rows: slice, T: int, T_kv: int) -> NDArray[Any]:
    """scale·QKᵀ of one block with -inf where the mask hides a key."""
    scores: NDArray[Any] = dots * dots.dtype.type(scale)
    if causal:
        last_seen = np.arange(rows.start, rows.stop) + (T_kv - T)
        scores[np.arange(dots.shape[1])[None, :] > last_seen[:, None]] = -np.inf
    return scores
