"""How much rounding may change each row of attention's results: sizes and noise for `row_bounds`.

Roundings are taken as independent, so those of a sum add up like a random walk: the root of the sum of their squares.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.dtypes import epsilon
from autotune.ops.attention_reference import (
    Arrays,
    heads,
    heads_apart,
    heads_together,
    masked_scores,
    row_blocks,
    shares_keys,
)
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
    tiny = _SUBNORMAL.get(dtype, 0.0) / (epsilon(dtype) / 2)
    size, noise, lse_noise = (np.zeros(q.shape[:3]) for _ in range(3))
    for b, h, kv in heads(q, k):
        lengths, largest, squares = _lengths(k[b, kv]), np.abs(v[b, kv]).max(axis=1), np.square(v[b, kv])
        for rows, seen in row_blocks(q.shape[2], k.shape[2], causal):
            if not seen:
                continue
            scores = masked_scores(q[b, h, rows] @ k[b, kv, :seen].T, scale, causal, rows, q.shape[2], k.shape[2])
            lse, p = _softmax(scores)
            each = _ROUNDINGS * scale * _lengths(q[b, h, rows])
            size[b, h, rows] = _walk(p + tiny, largest[:seen])
            spread = np.clip(p @ squares[:seen] - np.square(p @ v[b, kv, :seen]), 0.0, None).max(axis=1)
            score_noise = each * np.sqrt(p @ np.square(lengths[:seen])) + epsilon("fp32") * np.abs(lse)
            noise[b, h, rows] = score_noise * np.sqrt(spread)
            lse_noise[b, h, rows] = score_noise + _ROUNDINGS
    return {"out": RowScale(size, noise), "lse": RowScale(np.zeros_like(size), lse_noise)}


def backward_rows(inputs: Arrays, causal: bool, scale: float, dtype: str) -> dict[str, RowScale]:
    """Of `dq` (B, NH, T), `dk` and `dv` (B, NH_kv, T_kv). P and dS are rounded to the dtype, scores and dP in fp32."""
    if shares_keys(inputs, causal):
        return _apart(backward_rows(heads_together(inputs), causal, scale, dtype), inputs)
    q, k, v, dout, out = (_finite(inputs[name]) for name in ("q", "k", "v", "dout", "out"))
    tiny = _SUBNORMAL.get(dtype, 0.0) / (epsilon(dtype) / 2)
    squared = {n: (np.zeros(a.shape[:3]), np.zeros(a.shape[:3])) for n, a in (("dq", q), ("dk", k), ("dv", v))}
    for b, h, kv in heads(q, k):
        for rows, seen in row_blocks(q.shape[2], k.shape[2], causal):
            queries, keys, values = q[b, h, rows], k[b, kv, :seen], v[b, kv, :seen]
            lse = inputs["lse"][b, h, rows].astype(np.float32)
            scores = masked_scores(queries @ keys.T, scale, causal, rows, q.shape[2], k.shape[2])
            with np.errstate(invalid="ignore", over="ignore"):
                p = np.nan_to_num(np.exp(scores - lse[:, None]), nan=0.0, posinf=0.0)
            p[~np.isfinite(lse)] = 0
            ds = p * (dout[b, h, rows] @ values.T - (dout[b, h, rows] * out[b, h, rows]).sum(axis=1)[:, None])
            sizes = _lengths(dout[b, h, rows])
            score_noise = _ROUNDINGS * scale * np.outer(_lengths(queries), _lengths(keys))
            score_noise += epsilon("fp32") * np.abs(np.nan_to_num(lse, posinf=0.0, neginf=0.0))[:, None]
            dp_noise = _ROUNDINGS * (np.outer(sizes, _lengths(values)) + (sizes * _lengths(out[b, h, rows]))[:, None])
            ds_noise = np.abs(ds) * score_noise + p * dp_noise
            visible = np.isfinite(scores)
            for name, at, weights, noise, vectors in (
                ("dv", (b, kv, slice(0, seen)), p.T, (p * score_noise).T, dout[b, h, rows]),
                ("dk", (b, kv, slice(0, seen)), scale * ds.T, scale * ds_noise.T, queries),
                ("dq", (b, h, rows), scale * ds, scale * ds_noise, keys),
            ):
                seen_by = visible if name == "dq" else visible.T
                largest = np.abs(vectors).max(axis=1, initial=0.0)
                squared[name][0][at] += _walk(np.abs(weights) + tiny * seen_by, largest) ** 2
                squared[name][1][at] += _walk(noise, largest) ** 2
    return {name: RowScale(np.sqrt(size), np.sqrt(noise)) for name, (size, noise) in squared.items()}


def _apart(found: dict[str, RowScale], inputs: Arrays) -> dict[str, RowScale]:
    sizes = heads_apart({name: scale.size for name, scale in found.items()}, inputs)
    noises = heads_apart({name: scale.noise for name, scale in found.items()}, inputs)
    return {name: RowScale(sizes[name], noises[name]) for name in found}


def _walk(weights: Matrix, largest: Matrix) -> Matrix:
    walked: Matrix = _LIKELY * np.sqrt(np.square(weights) @ np.square(largest))
    return walked


def _softmax(scores: Matrix) -> tuple[Matrix, Matrix]:
    """Log-sum-exps and P; rows of -inf alone give 0."""
    peak = scores.max(axis=1, keepdims=True)
    peak[~np.isfinite(peak)] = 0
    p = np.exp(scores - peak)
    total = p.sum(axis=1, keepdims=True)
    safe = np.where(total == 0, 1, total)
    return (peak + np.log(safe))[:, 0], p / safe


def _lengths(rows: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(rows, axis=1)
    return lengths


def _finite(array: Matrix) -> Matrix:
    finite: Matrix = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    return finite
