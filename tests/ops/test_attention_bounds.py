"""References and bounds of attention against the formulas on whole matrices, as simple as they can be written."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from autotune.core.dtypes import epsilon, numpy_dtype
from autotune.core.threads import WORKERS
from autotune.ops import attention_blocks, expected
from autotune.ops.expected import expect, expectations, make_inputs
from autotune.ops.op import Arrays
from autotune.ops.registry import get_op

BACKWARD, FORWARD = get_op("backward"), get_op("forward")

CASES: list[dict[str, Any]] = [
    {"T": 300, "dtype": "fp16"},
    {"T": 300, "T_kv": 130, "dtype": "fp16"},
    {"T": 130, "T_kv": 700, "dtype": "bf16"},
    {"T": 270, "dtype": "fp32"},
    {"T": 200, "dtype": "fp16", "causal": False},
]


def gradients(arrays: Arrays, hidden: np.ndarray, scale: float, compute: type, low: str | None) -> Arrays:
    """Of one head, with NaN and numbers below the normal ones left to NumPy; `low`: what P and dS are rounded to."""
    q, k, v, out, dout, lse = (arrays[name][0, 0].astype(compute) for name in ("q", "k", "v", "out", "dout", "lse"))
    with np.errstate(all="ignore"):
        p = np.exp(np.minimum(compute(scale) * (q @ k.T) - lse[:, None], 0))
        ds = p * (dout @ v.T - (dout * out).sum(axis=1)[:, None])
        p[hidden | np.isneginf(lse)[:, None]], ds[hidden] = 0, 0
        if low is not None:
            p, ds = (array.astype(numpy_dtype(low)).astype(compute) for array in (p, ds))
        sums = {
            "dq": compute(scale) * summed(ds, k, hidden),
            "dk": compute(scale) * summed(ds.T, q, hidden.T),
            "dv": summed(p.T, dout, hidden.T),
        }
    kept = {name: array if low is None else array.astype(numpy_dtype(low)) for name, array in sums.items()}
    return {name: array.astype(np.float64)[None, None] for name, array in kept.items()}


def summed(weights: np.ndarray, rows: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """weights·rows without what is hidden: NaN in it counts only for who sees it."""
    seen = (~hidden).astype(float) @ ~np.isfinite(rows) > 0
    return np.where(seen, np.nan, weights @ np.where(np.isfinite(rows), rows, 0)).astype(weights.dtype)


@pytest.mark.parametrize("hard", [False, True], ids=["ordinary", "hard"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_references_and_rounded_results_are_the_formulas(case: dict[str, Any], hard: bool) -> None:
    problem = BACKWARD.problem(**{"B": 1, "NH": 1, "HS": 16, **case})
    arrays = make_inputs(BACKWARD, problem, 1, hard=hard)
    T, T_kv = (int(problem[name]) for name in ("T", "T_kv"))
    hidden = (np.arange(T_kv)[None, :] > np.arange(T)[:, None] + (T_kv - T)) & bool(problem["causal"])
    scale = BACKWARD.scalars(problem)["scale"]
    exact = gradients(arrays, hidden, scale, np.float64, None)
    got = BACKWARD.reference(problem, arrays)
    low, low_got = gradients(arrays, hidden, scale, np.float32, problem.dtype), BACKWARD.low_precision(problem, arrays)
    for name, reference in exact.items():
        largest = np.nanmax(np.abs(reference))
        np.testing.assert_allclose(got[name], reference, rtol=1e-12, atol=1e-12 * largest, err_msg=name)
        error, plain = (np.nan_to_num(np.abs(a[name] - reference)).max() for a in (low_got, low))
        assert error <= 1.25 * plain + 1e-6 * largest, name  # sums in another order


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_scales_are_the_formulas_in_float64(case: dict[str, Any]) -> None:
    problem = BACKWARD.problem(**{"B": 1, "NH": 1, "HS": 16, **case})
    arrays = make_inputs(BACKWARD, problem, 1, hard=True)
    T, T_kv = (int(problem[name]) for name in ("T", "T_kv"))
    hidden = (np.arange(T_kv)[None, :] > np.arange(T)[:, None] + (T_kv - T)) & bool(problem["causal"])
    scale, unit = BACKWARD.scalars(problem)["scale"], 8 * epsilon("fp32")
    q, k, v, out, dout = (
        np.nan_to_num(arrays[n][0, 0].astype(np.float32).astype(np.float64), posinf=0.0, neginf=0.0)
        for n in ("q", "k", "v", "out", "dout")
    )
    lse = arrays["lse"][0, 0].astype(np.float64)[:, None]
    with np.errstate(all="ignore"):
        p = np.exp(scale * (q @ k.T) - lse)
    p[~np.isfinite(p) | hidden | ~np.isfinite(lse)] = 0
    ds = np.abs(p * (dout @ v.T - (dout * out).sum(axis=1)[:, None]))
    q_size, k_size, v_size, out_size, dout_size = (np.linalg.norm(a, axis=1) for a in (q, k, v, out, dout))
    noise = unit * scale * np.outer(q_size, k_size)
    noise += epsilon("fp32") * np.abs(np.nan_to_num(lse, posinf=0.0, neginf=0.0))
    ds_noise = p * unit * (np.outer(dout_size, v_size) + (dout_size * out_size)[:, None]) + ds * noise
    least = 2.0**-25 / (epsilon("fp16") / 2) * ~hidden if problem.dtype == "fp16" else 0.0
    of_p, of_p_noise, of_ds, of_ds_noise = p + least, p * noise, scale * ds + least, scale * ds_noise
    q_most, k_most, dout_most = (np.square(np.abs(a).max(axis=1)) for a in (q, k, dout))
    expected_scales = {
        "dq": (np.square(of_ds) @ k_most, np.square(of_ds_noise) @ k_most),
        "dk": (q_most @ np.square(of_ds), q_most @ np.square(of_ds_noise)),
        "dv": (dout_most @ np.square(of_p), dout_most @ np.square(of_p_noise)),
    }
    got = BACKWARD.row_scales(problem, arrays)
    for name, (size, noise_of) in expected_scales.items():
        for row, squares in ((got[name].size, size), (got[name].noise, noise_of)):
            plain = 2.0 * np.sqrt(squares)
            np.testing.assert_allclose(row[0, 0], plain, rtol=2e-3, atol=1e-6 * plain.max(), err_msg=name)


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
def test_units_on_threads_of_their_own_are_as_those_of_many(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which thread made what, and what it had in its memory, shows in no bit."""
    problem = op.problem(B=1, NH=max(4, WORKERS), T=600, HS=8)
    together = expectations(op, problem, 0)
    started: list[Any] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            started.append(args)
            super().__init__(*args, **keywords)

    monkeypatch.setattr(attention_blocks, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(expected, "WORKERS", 2)
    apart = expect(op, problem, 0), expect(op, problem, 0, hard=True, hidden_nan=True)
    of_inputs = 2 if op is BACKWARD else 0  # each forward pass that is saved is made on all cores
    assert len(started) == of_inputs
    for whole, other in zip(together, apart, strict=True):
        for one, two in zip(whole.units, other.units, strict=True):
            for name, reference in one.reference.items():
                np.testing.assert_array_equal(reference, two.reference[name])
                np.testing.assert_array_equal(one.bound[name], two.bound[name])
