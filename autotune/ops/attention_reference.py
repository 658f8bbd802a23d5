"""Attention in NumPy: the float64 reference, and the same formulas with a kernel's rounding.

Arrays have shape (B, NH, T, HS), keys (B, NH_kv, T_kv, HS); values, out and its gradient have HS_v columns.
Forward: S = scale·QKᵀ, P = softmax(S), O = PV.
Backward (Dao et al., FlashAttention, appendix B): P = exp(S - LSE), dV = PᵀdO, dP = dOVᵀ,
D = rowsum(dO∘O), dS = P∘(dP - D), dQ = scale·dS·K, dK = scale·dSᵀ·Q. Rows without a key give 0 and LSE = -inf.
Sums go over visible pairs: what a query does not see does not change it, even if it is NaN or infinite.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.arithmetic import FULL
from autotune.core.dtypes import rounded
from autotune.core.scratch import scratch
from autotune.ops.attention_blocks import Block, Mask, blocks, do_all, in_order
from autotune.ops.rounding import round_to
from autotune.ops.tf32_products import multiply_tf32x3

Arrays = dict[str, NDArray[Any]]

LEAST = {np.dtype(np.float64): -600.0, np.dtype(np.float32): -60.0}
"""Exponents count as no less, by the type of the arithmetic. Their exponentials are lost in any sum with the row's
largest weight, and numbers below the normal ones, which they and their products would be, are slow a hundred times."""


Product = Callable[..., NDArray[Any]]
"""a @ b of two matrices, written to the keyword `out` where that is given."""

_PRODUCTS: Mapping[str, Product] = {FULL: np.matmul, "tf32x3": multiply_tf32x3}


@dataclass(frozen=True)
class _Rows:
    """Rows of an input, (…, HS), in the type of the arithmetic, and which of them hold NaN or infinity; None: none."""

    values: NDArray[Any]
    odd: NDArray[np.bool_] | None

    @classmethod
    def of(cls, array: NDArray[Any], compute: type[np.floating[Any]]) -> "_Rows":
        values = np.ascontiguousarray(array, compute)
        odd = np.asarray(~np.isfinite(values).all(axis=-1))
        return cls(values, odd if odd.any() else None)

    def at(self, b: int, head: int, rows: slice) -> "_Rows":
        """Some of one head, (rows, HS)."""
        odd = None if self.odd is None else self.odd[b, head, rows]
        return _Rows(self.values[b, head, rows], odd if odd is not None and odd.any() else None)


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
    q, k, v = (_Rows.of(inputs[name], compute) for name in ("q", "k", "v"))
    out, lse = np.zeros((*q.values.shape[:3], v.values.shape[3])), np.full(q.values.shape[:3], -np.inf)

    def work(block: Block) -> None:
        here, keys = (block.b, block.h, block.rows), slice(0, block.seen)
        queries = q.values[here]
        dots = scratch("p", (len(queries), block.seen), compute)
        with np.errstate(invalid="ignore"):
            product(queries, k.values[block.b, block.kv, keys].T, out=dots)
        hidden = block.hidden(keys)
        scores = masked_scores(dots, scale, hidden)
        values = v.at(block.b, block.kv, keys)
        out[here], lse[here] = _softmax_times(scores, values, hidden, low_precision, product)

    do_all(work, blocks(inputs["q"], inputs["k"], causal, whole_rows=True))
    return {"out": out if low_precision is None else rounded(out, low_precision), "lse": lse}


def _softmax_times(
    scores: NDArray[Any], values: _Rows, hidden: Mask | None, low_precision: str | None, product: Product
) -> tuple[Any, Any]:
    """One block's out and lse; rows of -inf alone give 0 and -inf. `scores` is overwritten."""
    if scores.shape[1] == 0:
        return 0.0, -np.inf
    peak = scores.max(axis=1, keepdims=True)
    empty = np.isneginf(peak[:, 0])
    peak[empty] = 0
    with np.errstate(invalid="ignore"):
        scores -= peak
        np.maximum(scores, LEAST[scores.dtype], out=scores)
        p = np.exp(scores, out=scores)
    if hidden is not None:
        p[hidden] = 0
    if empty.any():
        p[empty] = 0  # keys may be infinite
    total = p.sum(axis=1, keepdims=True)
    if low_precision is not None:
        round_to(p, low_precision)
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
    rows_of = {name: _Rows.of(inputs[name], compute) for name in ("q", "k", "v", "dout", "out")}
    q, k, v, dout, out = rows_of.values()
    finite = all(rows.odd is None for rows in rows_of.values())
    grads = {name: np.zeros(inputs[name[1:]].shape, compute) for name in ("dq", "dk", "dv")}

    def work(block: Block) -> tuple[NDArray[Any], NDArray[Any]]:
        """dQ of the rows, in place; what they add to dK and dV, (seen, HS) and (seen, HS_v)."""
        here = (block.b, block.h, block.rows)
        queries, gradients, dq = q.at(*here), dout.at(*here), grads["dq"][here]
        with np.errstate(invalid="ignore"):
            delta = (gradients.values * out.values[here]).sum(axis=1)
        lse = inputs["lse"][here].astype(compute)
        dk, dv = (np.empty((block.seen, rows.values.shape[3]), compute) for rows in (k, v))
        for tile in block.tiles:
            keys, values = (rows.at(block.b, block.kv, tile) for rows in (k, v))
            hidden = block.hidden(tile)
            p, ds = (scratch(name, (len(lse), tile.stop - tile.start), compute) for name in ("p", "ds"))
            with np.errstate(invalid="ignore"):
                product(queries.values, keys.values.T, out=p)
                p *= compute(scale)
                _probabilities(p, lse, hidden)
                product(gradients.values, values.values.T, out=ds)
                ds -= delta[:, None]
                ds *= p
            if hidden is not None and not finite:  # else it is 0, as P is
                ds[hidden] = 0
            if low_precision is not None:
                round_to(p, low_precision)
                round_to(ds, low_precision)
            hidden_by_key = None if hidden is None else hidden.T
            _sum_over_keys(p.T, gradients, hidden_by_key, product, out=dv[tile])
            _sum_over_keys(ds.T, queries, hidden_by_key, product, out=dk[tile])
            dq += _sum_over_keys(ds, keys, hidden, product)
        return dk, dv

    parts = blocks(inputs["q"], inputs["k"], causal, whole_rows=False)
    for block, (dk, dv) in zip(parts, in_order(work, parts), strict=True):
        grads["dk"][block.b, block.kv, : block.seen] += dk
        grads["dv"][block.b, block.kv, : block.seen] += dv
    grads["dq"] *= compute(scale)
    grads["dk"] *= compute(scale)
    if low_precision is not None:
        for grad in grads.values():
            round_to(grad, low_precision)
    return {name: grad.astype(np.float64, copy=False) for name, grad in grads.items()}


def _sum_over_keys(
    weights: NDArray[Any], rows: _Rows, hidden: Mask | None, product: Product, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """weights·rows, each row of the result from the rows that it sees: hidden weights are 0, and 0·NaN would be NaN."""
    if rows.odd is None:
        return product(weights, rows.values, out=out)
    result = product(weights, np.where(rows.odd[:, None], rows.values.dtype.type(0), rows.values), out=out)
    with np.errstate(invalid="ignore"):
        for row in np.flatnonzero(rows.odd):
            sees = slice(None) if hidden is None else ~hidden[:, row]
            result[sees] += np.outer(weights[sees, row], rows.values[row])
    return result


def _probabilities(scores: NDArray[Any], lse: NDArray[Any], hidden: Mask | None) -> None:
    """P in place of the scores. No more than 1: the log-sum-exp is rounded."""
    scores -= lse[:, None]
    np.clip(scores, LEAST[scores.dtype], 0, out=scores)
    np.exp(scores, out=scores)
    if hidden is not None:
        scores[hidden] = 0
    empty = np.isneginf(lse)
    if empty.any():
        scores[empty] = 0


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
