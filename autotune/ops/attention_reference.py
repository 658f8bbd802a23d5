"""Attention in NumPy: the float64 reference, and the same formulas with a kernel's rounding.

Arrays have shape (B, NH, T, HS), keys (B, NH_kv, T_kv, HS); values, out and its gradient have HS_v columns.
Forward: S = scale·QKᵀ, P = softmax(S), O = PV.
Backward (Dao et al., FlashAttention, appendix B): P = exp(S - LSE), dV = PᵀdO, dP = dOVᵀ,
D = rowsum(dO∘O), dS = P∘(dP - D), dQ = scale·dS·K, dK = scale·dSᵀ·Q. Rows without a key give 0 and LSE = -inf.
Sums go over visible pairs: what a query does not see does not change it, even if it is NaN or infinite.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.arithmetic import FULL
from autotune.core.dtypes import rounded
from autotune.ops.attention_blocks import Block, Mask, blocks, do_all, in_order
from autotune.ops.tf32_products import multiply_tf32x3

Arrays = dict[str, NDArray[Any]]
Product = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
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

    def work(block: Block) -> None:
        here, keys = (block.b, block.h, block.rows), slice(0, block.seen)
        with np.errstate(invalid="ignore"):
            dots = product(q[here].astype(compute), k[block.b, block.kv, keys].astype(compute).T)
        hidden = block.hidden(keys)
        scores = masked_scores(dots, scale, hidden)
        values = v[block.b, block.kv, keys].astype(compute)
        out[here], lse[here] = _softmax_times(scores, values, hidden, low_precision, product)

    do_all(work, blocks(q, k, causal, whole_rows=True))
    return {"out": out if low_precision is None else rounded(out, low_precision), "lse": lse}


def _softmax_times(
    scores: NDArray[Any], values: NDArray[Any], hidden: Mask | None, low_precision: str | None, product: Product
) -> tuple[Any, Any]:
    """One block's out and lse; rows of -inf alone give 0 and -inf. `scores` is overwritten."""
    if scores.shape[1] == 0:
        return 0.0, -np.inf
    peak = scores.max(axis=1, keepdims=True)
    peak[np.isneginf(peak)] = 0
    with np.errstate(invalid="ignore"):
        scores -= peak
        p = np.exp(scores, out=scores)
    if hidden is not None:
        p[hidden] = 0
    total = p.sum(axis=1, keepdims=True)
    if low_precision is not None:
        p = rounded(p, low_precision)
    safe = np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return _sum_over_keys(p, values, hidden, product) / safe, (peak + np.log(total))[:, 0]


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
    grads = {"dq": np.zeros(q.shape, compute), "dk": np.zeros(k.shape, compute), "dv": np.zeros(v.shape, compute)}

    def work(block: Block) -> tuple[NDArray[Any], NDArray[Any]]:
        """dQ of the rows, in place; what they add to dK and dV, (seen, HS) and (seen, HS_v)."""
        here = (block.b, block.h, block.rows)
        queries, dout = q[here].astype(compute), inputs["dout"][here].astype(compute)
        with np.errstate(invalid="ignore"):
            delta = (dout * inputs["out"][here].astype(compute)).sum(axis=1)
        lse, dq = inputs["lse"][here].astype(compute), grads["dq"][here]
        dk, dv = (np.empty((block.seen, array.shape[3]), compute) for array in (k, v))
        for tile in block.tiles:
            keys, values = (array[block.b, block.kv, tile].astype(compute) for array in (k, v))
            hidden = block.hidden(tile)
            with np.errstate(invalid="ignore"):
                p = _probabilities(masked_scores(product(queries, keys.T), scale, hidden), lse)
                ds = product(dout, values.T)
                ds -= delta[:, None]
                ds *= p
            if hidden is not None:
                p[hidden], ds[hidden] = 0, 0
            if low_precision is not None:
                p, ds = rounded(p, low_precision), rounded(ds, low_precision)
            hidden_by_key = None if hidden is None else hidden.T
            dv[tile] = _sum_over_keys(p.T, dout, hidden_by_key, product)
            dk[tile] = _sum_over_keys(ds.T, queries, hidden_by_key, product)
            dq += _sum_over_keys(ds, keys, hidden, product)
        return dk, dv

    parts = blocks(q, k, causal, whole_rows=False)
    for block, (dk, dv) in zip(parts, in_order(work, parts), strict=True):
        grads["dk"][block.b, block.kv, : block.seen] += dk
        grads["dv"][block.b, block.kv, : block.seen] += dv
    grads["dq"] *= compute(scale)
    grads["dk"] *= compute(scale)
    finish = (lambda a: a) if low_precision is None else (lambda a: rounded(a, low_precision))
    return {name: finish(grad).astype(np.float64) for name, grad in grads.items()}


def _sum_over_keys(weights: NDArray[Any], rows: NDArray[Any], hidden: Mask | None, product: Product) -> NDArray[Any]:
    """weights·rows, each row of the result from the rows that it sees: hidden weights are 0, and 0·NaN would be NaN."""
    odd = ~np.isfinite(rows).all(axis=1)
    if not odd.any():
        return product(weights, rows)
    result = product(weights, np.where(odd[:, None], rows.dtype.type(0), rows))
    with np.errstate(invalid="ignore"):
        for row in np.flatnonzero(odd):
            sees = slice(None) if hidden is None else ~hidden[:, row]
            result[sees] += np.outer(weights[sees, row], rows[row])
    return result


def _probabilities(scores: NDArray[Any], lse: NDArray[Any]) -> NDArray[Any]:
    """`scores` is overwritten. No more than 1: the log-sum-exp is rounded."""
    scores -= lse[:, None]
    p: NDArray[Any] = np.exp(np.minimum(scores, 0, out=scores), out=scores)
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


def masked_scores(dots: NDArray[Any], scale: float, hidden: Mask | None) -> NDArray[Any]:
    """scale·QKᵀ with -inf where the mask hides a key. `dots` is overwritten."""
    dots *= dots.dtype.type(scale)
    if hidden is not None:
        dots[hidden] = -np.inf
    return dots
