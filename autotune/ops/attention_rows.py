"""How much rounding may change each row of attention's results: sizes and noise for `row_bounds`.

Roundings are taken as independent, so those of a sum add up like a random walk: the root of the sum of their squares.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import epsilon
from autotune.core.scratch import scratch
from autotune.ops.attention_blocks import Block, Mask, blocks, do_all, in_order
from autotune.ops.attention_reference import LEAST, Arrays, heads_apart, heads_together, masked_scores, shares_keys
from autotune.ops.row_bounds import RowScale

_ROUNDINGS = 8 * epsilon("fp32")
"""Of a score, relative to the product of its vectors' lengths: tensor cores cut off, 3xTF32 drops the smallest product,
exponents are multiplied by log2 e. The same of dP."""

_LIKELY = 2.0  # standard deviations of the random walk
_SUBNORMAL = {"fp16": 2.0**-25}  # half of the least step there is; of the other dtypes it is beyond notice

Matrix = NDArray[Any]


def forward_rows(inputs: Arrays, causal: bool, scale: float, dtype: str) -> dict[str, RowScale]:
    """Of `out` and `lse`, each (B, NH, T). P is rounded to the dtype, scores in fp32."""
    if shares_keys(inputs, causal):
        return _apart(forward_rows(heads_together(inputs), causal, scale, dtype), inputs)
    q, k, v = (_finite(inputs[name]) for name in ("q", "k", "v"))
    lengths, largest = _lengths(k), np.abs(v).max(axis=-1, initial=0.0)
    size, noise, lse_noise = (np.zeros(q.shape[:3]) for _ in range(3))

    def work(block: Block) -> None:
        if not block.seen:
            return
        here, keys = (block.b, block.h, block.rows), (block.b, block.kv, slice(0, block.seen))
        dots = scratch("p", (block.rows.stop - block.rows.start, block.seen), np.float32)
        hidden = block.hidden(keys[2])
        lse, p = _softmax(masked_scores(np.matmul(q[here], k[keys].T, out=dots), scale, hidden), hidden)
        each = _ROUNDINGS * scale * _lengths(q[here])
        spread = np.clip(p @ np.square(v[keys]) - np.square(p @ v[keys]), 0.0, None).max(axis=1)
        score_noise = each * np.sqrt(p @ np.square(lengths[keys])) + epsilon("fp32") * np.abs(lse)
        noise[here] = score_noise * np.sqrt(spread)
        lse_noise[here] = score_noise + _ROUNDINGS
        p += p.dtype.type(_tiny(dtype))
        size[here] = _LIKELY * np.sqrt(np.square(p, out=p) @ np.square(largest[keys]))

    do_all(work, blocks(q, k, causal, whole_rows=True))
    return {"out": RowScale(size, noise), "lse": RowScale(np.zeros_like(size), lse_noise)}


def backward_rows(inputs: Arrays, causal: bool, scale: float, dtype: str) -> dict[str, RowScale]:
    """Of `dq` (B, NH, T), `dk` and `dv` (B, NH_kv, T_kv). P and dS are rounded to the dtype, scores and dP in fp32."""
    if shares_keys(inputs, causal):
        return _apart(backward_rows(heads_together(inputs), causal, scale, dtype), inputs)
    q, k, v, dout, out = (_finite(inputs[name]) for name in ("q", "k", "v", "dout", "out"))
    squared = {n: (np.zeros(a.shape[:3]), np.zeros(a.shape[:3])) for n, a in (("dq", q), ("dk", k), ("dv", v))}

    def work(block: Block) -> Matrix:
        """dQ's squares, in place; what the rows add to those of dK and dV: sizes and noises, (2, 2, seen)."""
        here = (block.b, block.h, block.rows)
        rows = _Rows.of(q[here], dout[here], out[here], inputs["lse"][here].astype(np.float32), scale)
        by_key = np.zeros((2, 2, block.seen))
        for tile in block.tiles:
            keys, values = k[block.b, block.kv, tile], v[block.b, block.kv, tile]
            p, p_noise, ds, ds_noise = rows.weights(keys, values, block.hidden(tile), _tiny(dtype))
            of_keys = np.square(np.abs(keys).max(axis=1, initial=0.0))
            squared["dq"][0][here] += ds @ of_keys
            squared["dq"][1][here] += ds_noise @ of_keys
            by_key[0, 0, tile], by_key[0, 1, tile] = rows.of_queries @ ds, rows.of_queries @ ds_noise
            by_key[1, 0, tile], by_key[1, 1, tile] = rows.of_gradients @ p, rows.of_gradients @ p_noise
        return by_key

    parts = blocks(q, k, causal, whole_rows=False)
    for block, by_key in zip(parts, in_order(work, parts), strict=True):
        for name, sums in zip(("dk", "dv"), by_key, strict=True):
            for total, of_rows in zip(squared[name], sums, strict=True):
                total[block.b, block.kv, : block.seen] += of_rows
    return {
        name: RowScale(_LIKELY * np.sqrt(size), _LIKELY * np.sqrt(noise)) for name, (size, noise) in squared.items()
    }


@dataclass(frozen=True)
class _Rows:
    """Some query rows of one head: what their shares of the sums are made of. Squares are of rows' largest elements."""

    queries: Matrix
    dout: Matrix
    lse: Matrix
    delta: Matrix
    scale: float
    score_noise: Matrix
    lse_noise: Matrix
    dp_noise: Matrix
    delta_noise: Matrix
    of_queries: Matrix
    of_gradients: Matrix

    @classmethod
    def of(cls, queries: Matrix, dout: Matrix, out: Matrix, lse: Matrix, scale: float) -> "_Rows":
        """Queries (rows, HS), gradients and results (rows, HS_v), log-sum-exps (rows)."""
        sizes = _lengths(dout)
        return cls(
            queries,
            dout,
            lse,
            delta=(dout * out).sum(axis=1),
            scale=scale,
            score_noise=_ROUNDINGS * scale * _lengths(queries),
            lse_noise=epsilon("fp32") * np.abs(np.nan_to_num(lse, posinf=0.0, neginf=0.0)),
            dp_noise=_ROUNDINGS * sizes,
            delta_noise=_ROUNDINGS * sizes * _lengths(out),
            of_queries=np.square(np.abs(queries).max(axis=1, initial=0.0)),
            of_gradients=np.square(np.abs(dout).max(axis=1, initial=0.0)),
        )

    def weights(
        self, keys: Matrix, values: Matrix, hidden: Mask | None, tiny: float
    ) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Squares of P, of its noise, of scale·dS and of its noise, each (rows, keys)."""
        shape = (len(self.queries), len(keys))
        p, noise, ds, ds_noise, product = (
            scratch(use, shape, np.float32) for use in ("p", "noise", "ds", "ds_noise", "product")
        )
        np.matmul(self.queries, keys.T, out=p)
        p *= p.dtype.type(self.scale)
        with np.errstate(invalid="ignore", over="ignore"):
            p -= self.lse[:, None]
            np.maximum(p, LEAST[p.dtype], out=p)
            np.exp(p, out=p)
        if not np.isfinite(p.max(initial=0.0)):
            p[~np.isfinite(p)] = 0
        for none in (hidden, ~np.isfinite(self.lse)):
            if none is not None and none.any():
                p[none] = 0
        np.matmul(self.dout, values.T, out=ds)
        ds -= self.delta[:, None]
        ds *= p
        np.abs(ds, out=ds)
        np.multiply.outer(self.score_noise, _lengths(keys), out=noise)
        noise += self.lse_noise[:, None]
        np.multiply.outer(self.dp_noise, _lengths(values), out=ds_noise)
        ds_noise += self.delta_noise[:, None]
        ds_noise *= p
        ds_noise += np.multiply(ds, noise, out=product)
        noise *= p
        ds *= ds.dtype.type(self.scale)
        ds_noise *= ds.dtype.type(self.scale)
        if tiny:
            p += p.dtype.type(tiny)
            ds += ds.dtype.type(tiny)
            if hidden is not None:
                p[hidden], ds[hidden] = 0, 0
        for array in (p, noise, ds, ds_noise):
            np.square(array, out=array)
        return p, noise, ds, ds_noise


def _apart(found: dict[str, RowScale], inputs: Arrays) -> dict[str, RowScale]:
    sizes = heads_apart({name: scale.size for name, scale in found.items()}, inputs)
    noises = heads_apart({name: scale.noise for name, scale in found.items()}, inputs)
    return {name: RowScale(sizes[name], noises[name]) for name in found}


def _tiny(dtype: str) -> float:
    """What a step of subnormal numbers is as if it were a weight's rounding."""
    return _SUBNORMAL.get(dtype, 0.0) / (epsilon(dtype) / 2)


def _softmax(scores: Matrix, hidden: Mask | None) -> tuple[Matrix, Matrix]:
    """Log-sum-exps and P; rows of -inf alone give 0. `scores` is overwritten."""
    peak = scores.max(axis=1, keepdims=True)
    peak[~np.isfinite(peak)] = 0
    scores -= peak
    np.maximum(scores, LEAST[scores.dtype], out=scores)
    p = np.exp(scores, out=scores)
    if hidden is not None:
        p[hidden] = 0
    total = p.sum(axis=1, keepdims=True)
    safe = np.where(total == 0, 1, total)
    p /= safe
    return (peak + np.log(safe))[:, 0], p


def _lengths(rows: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(rows, axis=-1)
    return lengths


def _finite(array: Matrix) -> Matrix:
    finite: Matrix = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    return finite
