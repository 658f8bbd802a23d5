"""Ops `matmul`, `softmax`, `softmax_backward`: fields, layouts, counts, and references against other formulas."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.answers.lookup import best
from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.families.template import builtin_templates
from autotune.ops.expected import expect, tensor_view
from autotune.ops.matmul_reference import rounded_to_tf32
from autotune.ops.registry import BUILTIN, get_op

MATMUL, SOFTMAX, BACKWARD = (get_op(name) for name in ("matmul", "softmax", "softmax_backward"))


def test_they_are_built_in() -> None:
    assert set(BUILTIN) >= {"matmul", "softmax", "softmax_backward"}


def test_defaults_are_the_ladders_scores() -> None:
    problem = MATMUL.problem()
    sizes, others = "B=4 NH=12 M=1024 N=1024 K=64 dtype=fp16", "alpha=1.0 group=1 interleaved=none arithmetic=full"
    assert problem.key == f"matmul {sizes} layout=nt mask=none {others}"
    assert MATMUL.flops(problem) == 2 * 48 * 1024 * 1024 * 64
    assert MATMUL.nbytes(problem) == 48 * 2 * (2 * 1024 * 64 + 1024 * 1024)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_where_matrices_lie(layout: str) -> None:
    """A stored transposed is a (K, M) matrix whose rows follow one another, and so on."""
    a, b, c = MATMUL.tensors(MATMUL.problem(B=2, NH=3, M=5, N=6, K=7, layout=layout))
    assert [t.shape for t in (a, b, c)] == [(2, 3, 5, 7), (2, 3, 7, 6), (2, 3, 5, 6)]
    assert a.strides == ((105, 35, 7, 1) if layout[0] == "n" else (105, 35, 1, 5))
    assert b.strides == ((126, 42, 6, 1) if layout[1] == "n" else (126, 42, 1, 7))
    assert c.strides == (90, 30, 6, 1)
    storage = np.arange(2 * 3 * 5 * 7)
    stored = storage.reshape((2, 3, 5, 7) if layout[0] == "n" else (2, 3, 7, 5))
    expected = stored if layout[0] == "n" else stored.swapaxes(2, 3)
    np.testing.assert_array_equal(tensor_view(storage, a), expected)


@pytest.mark.parametrize("mask", ["none", "c_lower", "a_lower", "a_upper"])
def test_products_and_their_triangles(mask: str) -> None:
    problem = MATMUL.problem(B=1, NH=2, M=5, N=4, K=7, dtype="fp32", mask=mask, alpha=-0.5)
    inputs = MATMUL.inputs(problem, seed=1)
    got = MATMUL.reference(problem, inputs)["c"]
    for head, i, j in np.ndindex(2, 5, 4):
        terms = [float(inputs["a"][0, head, i, k]) * float(inputs["b"][0, head, k, j]) for k in range(7)]
        wanted = mask != "c_lower" or j <= i + 4 - 5
        assert got[0, head, i, j] == pytest.approx(-0.5 * sum(terms) if wanted else 0.0, abs=1e-12)
        for k in range(7):
            seen = {"a_lower": k <= i + 7 - 5, "a_upper": k >= i + 7 - 5}.get(mask, True)
            assert (inputs["a"][0, head, i, k] != 0) == seen


def test_masks_halve_flops_and_what_is_read() -> None:
    whole, half = (MATMUL.problem(M=64, N=32, K=64, layout="nn", mask=mask) for mask in ("none", "a_lower"))
    assert MATMUL.flops(half) == MATMUL.flops(whole) / 2
    assert MATMUL.nbytes(whole) - MATMUL.nbytes(half) == 48 * 2 * 64 * 64 / 2


@pytest.mark.parametrize(("dtype", "ulp"), [("fp16", 2.0**-11), ("bf16", 2.0**-8), ("fp32", 2.0**-24)])
def test_low_precision_rounds_the_product_once(dtype: str, ulp: float) -> None:
    problem = MATMUL.problem(B=1, NH=1, M=40, N=40, K=64, dtype=dtype)
    inputs = MATMUL.inputs(problem, seed=2)
    exact, rounded = (f(problem, inputs)["c"] for f in (MATMUL.reference, MATMUL.low_precision))
    largest = np.abs(exact).max()
    error = np.abs(rounded - exact).max()
    assert 0.1 * ulp * largest < error < 8 * ulp * largest


def test_matrices_that_are_emulated() -> None:
    def emulated(**fields: int) -> Problem:
        return MATMUL.emulated(MATMUL.problem(**fields))

    assert emulated() == MATMUL.problem(B=2, NH=2)
    assert emulated(B=1, NH=1, M=100, N=200, K=300) == MATMUL.problem(B=1, NH=1, M=100, N=200, K=300)
    large = emulated(M=4096 + 7, N=4096, K=4096)
    assert (large["B"], large["NH"], large["M"], large["N"], large["K"]) == (1, 1, 263, 256, 4096)
    assert MATMUL.flops(emulated(B=1, NH=1, M=8192, N=8192, K=100_000)) <= 0.8e9


def test_units_are_matrices() -> None:
    problem = MATMUL.problem(B=2, NH=3, M=4, N=5, K=6)
    inputs = MATMUL.inputs(problem, seed=3)
    assert MATMUL.units(problem) == 6
    piece = MATMUL.unit(problem, inputs, 4)
    np.testing.assert_array_equal(piece["a"], inputs["a"][1:2, 1:2])
    expected = MATMUL.reference(problem, inputs)["c"][1:2, 1:2]
    np.testing.assert_allclose(MATMUL.reference(MATMUL.unit_problem(problem), piece)["c"], expected)


def test_matrices_that_share_one_of_b() -> None:
    problem = MATMUL.problem(B=2, NH=6, M=4, N=5, K=7, group=3, layout="nt")
    a, b, c = MATMUL.tensors(problem)
    assert [t.shape for t in (a, b, c)] == [(2, 6, 4, 7), (2, 2, 7, 5), (2, 6, 4, 5)]
    inputs = MATMUL.inputs(problem, seed=3)
    got = MATMUL.reference(problem, inputs)["c"]
    np.testing.assert_allclose(got[1, 4], inputs["a"][1, 4].astype(float) @ inputs["b"][1, 1].astype(float))
    assert MATMUL.units(problem) == 4
    piece, small = MATMUL.unit(problem, inputs, 3), MATMUL.unit_problem(problem)
    np.testing.assert_allclose(MATMUL.reference(small, piece)["c"], got[1:, 3:])
    assert MATMUL.emulated(MATMUL.problem(M=512, N=512, group=3)) == MATMUL.problem(B=2, NH=6, M=512, N=512, group=3)


def test_operands_that_lie_as_attention_has_them() -> None:
    a, b, c = MATMUL.tensors(MATMUL.problem(B=2, NH=3, M=5, N=6, K=8, layout="nt", interleaved="ab"))
    assert a.strides == (5 * 3 * 8, 8, 3 * 8, 1)
    assert b.strides == (6 * 3 * 8, 8, 1, 3 * 8)  # stored as (B, N, NH, K)
    assert c.strides == (3 * 5 * 6, 5 * 6, 6, 1)


def test_tf32_is_judged_by_what_rounding_to_it_costs() -> None:
    fields: dict[str, Any] = {"B": 1, "NH": 1, "M": 40, "N": 40, "K": 64, "dtype": "fp32"}
    full, tf32 = MATMUL.problem(**fields), MATMUL.problem(**fields, arithmetic="tf32")
    bounds = [expect(MATMUL, problem, seed=1).units[0].bound["c"] for problem in (full, tf32)]
    assert 100 < bounds[1] / bounds[0] < 8192
    x = np.array([1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-23, -1 - 3 * 2.0**-11, np.inf, np.nan, 0.0], np.float32)
    rounded = rounded_to_tf32(x)
    np.testing.assert_array_equal(
        rounded, np.array([1 + 2.0**-10, 1, -1 - 2 * 2.0**-10, np.inf, np.nan, 0], np.float32)
    )
    assert "arithmetic" in MATMUL.exact_fields  # a look-up for one is never answered with the other


@pytest.mark.parametrize(("T", "T_kv"), [(7, 7), (3, 9), (9, 3), (1, 1)])
@pytest.mark.parametrize("causal", [True, False])
def test_softmax_row_by_row(T: int, T_kv: int, causal: bool) -> None:
    problem = SOFTMAX.problem(B=1, NH=1, T=T, T_kv=T_kv, dtype="fp32", causal=causal, scale=0.7)
    scores = SOFTMAX.inputs(problem, seed=4)
    got = SOFTMAX.reference(problem, scores)["weights"][0, 0]
    for i in range(T):
        seen = max(0, min(T_kv, i + T_kv - T + 1)) if causal else T_kv
        e = np.exp(0.7 * scores["scores"][0, 0, i, :seen].astype(np.float64))
        np.testing.assert_allclose(got[i, :seen], e / e.sum() if seen else e)
        assert (got[i, seen:] == 0).all()
    pairs = sum(max(0, min(T_kv, i + T_kv - T + 1)) if causal else T_kv for i in range(T))
    assert SOFTMAX.nbytes(problem) == 4 * (pairs + T * T_kv)


def test_softmax_does_not_overflow_and_ignores_what_is_hidden() -> None:
    problem = SOFTMAX.problem(B=1, NH=1, T=4, T_kv=4, dtype="fp32", scale=1.0)
    scores = np.full((1, 1, 4, 4), 1e4, np.float32)
    scores[0, 0][np.triu_indices(4, 1)] = np.nan
    got = SOFTMAX.reference(problem, {"scores": scores})["weights"][0, 0]
    np.testing.assert_allclose(got, np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None])


def test_the_gradient_is_the_derivative() -> None:
    """dS by central differences of sum(dP * softmax(S)) in float64."""
    problem = BACKWARD.problem(B=1, NH=1, T=5, T_kv=6, dtype="fp32", scale=0.7)
    generator = np.random.default_rng(5)
    scores, gradient = generator.standard_normal((2, 1, 1, 5, 6))
    forward = SOFTMAX.problem(B=1, NH=1, T=5, T_kv=6, dtype="fp32", scale=0.7)

    def loss(s: np.ndarray) -> float:
        return float((gradient * SOFTMAX.reference(forward, {"scores": s})["weights"]).sum())

    weights = SOFTMAX.reference(forward, {"scores": scores})["weights"]
    got = BACKWARD.reference(problem, {"weights": weights, "d_weights": gradient})["d_scores"]
    for i, j in np.ndindex(5, 6):
        step = np.zeros_like(scores)
        step[0, 0, i, j] = 1e-5
        assert got[0, 0, i, j] == pytest.approx((loss(scores + step) - loss(scores - step)) / 2e-5, abs=1e-8)


def test_weights_given_to_the_gradient_are_a_softmax() -> None:
    problem = BACKWARD.problem(B=1, NH=2, T=9, T_kv=5, dtype="fp16")
    weights = BACKWARD.inputs(problem, seed=6)["weights"].astype(np.float64)
    np.testing.assert_allclose(weights[:, :, 4:].sum(axis=-1), 1.0, atol=2e-3)
    assert (weights[:, :, :4] == 0).all()


def test_a_gradient_that_cancels_has_room_for_rounding() -> None:
    """One key: dS is 0 exactly, and P(dP - P dP) may leave some roundings of dP."""
    problem = BACKWARD.problem(B=1, NH=1, T=4, T_kv=1, dtype="fp32")
    unit = expect(BACKWARD, problem, seed=7).units[0]
    assert (unit.reference["d_scores"] == 0).all()
    assert 0 < unit.bound["d_scores"] < 1e-5


@pytest.mark.parametrize(
    ("op", "fields", "said"),
    [
        ("matmul", {"layout": "bthd"}, "layout='bthd' is not one of nn, nt, tn, tt"),
        ("matmul", {"alpha": float("inf")}, "alpha=inf is not a finite number"),
        ("matmul", {"alpha": True}, "alpha=True is not a finite number"),
        ("matmul", {"group": 5}, "NH=12 is not divisible by group=5"),
        ("matmul", {"dtype": "fp16", "arithmetic": "tf32"}, "arithmetic=tf32 goes with dtype=fp32, not fp16"),
        ("softmax", {"scale": "wide"}, "scale='wide' is not a finite number"),
        ("softmax", {"T_kv": 0}, "T_kv=0 must be at least 1"),
    ],
)
def test_fields_that_make_no_sense(op: str, fields: dict[str, str], said: str) -> None:
    with pytest.raises(ProblemError, match=said.replace("(", r"\(")):
        get_op(op).problem(**fields)


@pytest.mark.parametrize(
    ("op", "family"), [("matmul", "mma"), ("softmax", "warp_per_row"), ("softmax_backward", "row_sum")]
)
def test_what_is_used_before_anything_is_tuned(op: str, family: str, tmp_path: Path) -> None:
    """The family that computes least, not a step of the climb that sums over the row for every element."""
    assert best(op, device="h200", db=tmp_path / "none.db").candidate.template == family
    assert {template.name for template in builtin_templates(op)} > {family}


def test_families_say_what_they_compute_beyond_the_op() -> None:
    problem = BACKWARD.problem(B=1, NH=1, T=10, T_kv=10, causal=False)
    flops = BACKWARD.flops(problem)
    executed = {t.name: t.executed_flops(flops, problem) for t in builtin_templates("softmax_backward")}
    assert executed == {
        "row_sum": flops, "block_per_row": 4000, "thread_per_element": 4000, "warp_per_element": 4000,
    }  # fmt: skip
