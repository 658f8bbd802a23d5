"""The attention references: against the formula written out, against finite differences, and at the edges."""

from typing import Any

import numpy as np
import pytest

from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.ops.expected import make_inputs
from autotune.ops.op import Arrays, Op
from autotune.ops.registry import get_op

FORWARD, BACKWARD = get_op("forward"), get_op("backward")


def plain(inputs: Arrays, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Loops over every element, as in a textbook."""
    q, k, v = (inputs[name].astype(np.float64) for name in ("q", "k", "v"))
    B, NH, T, HS = q.shape
    T_kv, group = k.shape[2], NH // k.shape[1]
    out, lse = np.zeros((B, NH, T, v.shape[3])), np.full((B, NH, T), -np.inf)
    for b, h, i in np.ndindex(B, NH, T):
        keys = min(T_kv, i + 1 + T_kv - T) if problem["causal"] else T_kv
        if keys > 0:
            scores = k[b, h // group, :keys] @ q[b, h, i] * float(np.float32(1 / np.sqrt(HS)))
            weights = np.exp(scores - scores.max())
            out[b, h, i] = weights @ v[b, h // group, :keys] / weights.sum()
            lse[b, h, i] = scores.max() + np.log(weights.sum())
    return out, lse


CASES: list[dict[str, Any]] = [
    {"T": 1},
    {"T": 7, "T_kv": 3},
    {"T": 3, "T_kv": 7},
    {"T": 7, "T_kv": 3, "causal": False},
    {"T": 600, "NH": 1, "NH_kv": 1},
    {"T": 5, "NH": 6, "NH_kv": 2},
    {"T": 5, "T_kv": 4, "NH": 6, "NH_kv": 2, "causal": False},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_formula(case: dict[str, Any]) -> None:
    problem = FORWARD.problem(**{"B": 2, "NH": 2, "HS": 8, "dtype": "fp32", **case})
    inputs = FORWARD.inputs(problem, 1)
    got = FORWARD.reference(problem, inputs)
    out, lse = plain(inputs, problem)
    np.testing.assert_allclose(got["out"], out, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(got["lse"], lse, rtol=1e-12)


GRADIENTS: list[dict[str, Any]] = [
    {"T": 5, "T_kv": 3},
    {"T": 3, "T_kv": 5},
    {"T": 4, "NH": 3, "NH_kv": 1},
    {"T": 3, "T_kv": 2, "NH": 4, "NH_kv": 2, "causal": False},
]


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
def test_heads_that_share_keys_have_the_scales_of_heads_of_their_own(op: Op) -> None:
    """Without a mask they are computed as rows of one head."""
    problem = op.problem(B=2, NH=4, NH_kv=2, T=5, T_kv=6, HS=8, dtype="bf16", causal=False)
    inputs = op.inputs(problem, 3)
    apart = {name: a.repeat(2, axis=1) if name in ("k", "v") else a for name, a in inputs.items()}
    shared, own = op.row_scales(problem, inputs), op.row_scales(problem.replace(NH_kv=4), apart)
    for name in ("out", "lse", "dq"):
        if name in own:
            assert shared[name].size.shape == (2, 4, 5)
            np.testing.assert_allclose(shared[name].size, own[name].size, rtol=1e-4)
            np.testing.assert_allclose(shared[name].noise, own[name].noise, rtol=1e-4)


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_backward_is_the_derivative_of_forward(case: dict[str, Any]) -> None:
    problem = BACKWARD.problem(**{"B": 1, "NH": 2, "HS": 4, "dtype": "fp32", **case})
    inputs = {name: array.astype(np.float64) for name, array in BACKWARD.inputs(problem, 2).items()}
    inputs["out"], inputs["lse"] = plain(inputs, problem)
    gradients = BACKWARD.reference(problem, inputs)
    for name in ("q", "k", "v"):
        numeric = np.zeros(inputs[name].shape)
        for index in np.ndindex(numeric.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = {**inputs, name: inputs[name].copy()}
                moved[name][index] += step
                sides.append((plain(moved, problem)[0] * inputs["dout"]).sum())
            numeric[index] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(gradients["d" + name], numeric, atol=1e-7)


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_low_precision_is_close_but_not_equal(op: Op, dtype: str) -> None:
    problem = op.problem(B=1, NH=2, T=64, HS=32, dtype=dtype)
    inputs = op.inputs(problem, 3)
    exact, rough = op.reference(problem, inputs), op.low_precision(problem, inputs)
    unit = {"fp16": 2**-10, "bf16": 2**-7, "fp32": 2**-22}[dtype]
    for name, expected in exact.items():
        error = np.abs(expected - rough[name]).max()
        assert 0 < error < 8 * unit * max(1.0, np.abs(expected).max()), name


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
def test_rows_without_a_key_are_zero_and_finite(op: Op) -> None:
    problem = op.problem(B=1, NH=1, T=9, T_kv=4, HS=8)
    inputs = op.inputs(problem, 4)
    result = op.reference(problem, inputs)
    if op is FORWARD:
        assert np.isneginf(result["lse"][0, 0, :5]).all()
        assert (result["out"][0, 0, :5] == 0).all()
    else:
        assert (result["dq"][0, 0, :5] == 0).all()
        assert all(np.isfinite(array).all() for array in result.values())


@pytest.mark.parametrize("causal", [False, True])
def test_rows_whose_keys_all_have_no_weight_are_zero(causal: bool) -> None:
    """Scores of -inf come of infinite keys, too; beside others they count nothing."""
    problem = FORWARD.problem(B=1, NH=1, T=4, T_kv=6, HS=8, dtype="fp32", causal=causal)
    inputs = FORWARD.inputs(problem, 4)
    inputs["q"] = np.abs(inputs["q"])
    inputs["k"][0, 0, :4] = -np.inf
    beside = {"q": inputs["q"][:, :, 2:], "k": inputs["k"][:, :, 4:], "v": inputs["v"][:, :, 4:]}
    others = FORWARD.reference(problem.replace(T=2, T_kv=2), beside)
    result = FORWARD.reference(problem, inputs)
    for name, expected in others.items():
        np.testing.assert_allclose(result[name][:, :, 2:], expected, rtol=1e-12)
    inputs["k"][...] = -np.inf
    result = FORWARD.reference(problem, inputs)
    assert (result["out"] == 0).all()
    assert np.isneginf(result["lse"]).all()


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
def test_units_together_are_the_whole(op: Op) -> None:
    problem = op.problem(B=2, NH=6, NH_kv=2, T=5, T_kv=6, HS=4, dtype="fp32")
    inputs = op.inputs(problem, 5)
    whole = op.reference(problem, inputs)
    assert op.units(problem) == 4
    for index in range(4):
        part = op.reference(op.unit_problem(problem), op.unit(problem, inputs, index))
        for name, expected in op.unit(problem, whole, index).items():
            np.testing.assert_array_equal(part[name], expected)


def test_the_emulated_problem_keeps_sequences_and_groups() -> None:
    small = FORWARD.emulated(FORWARD.problem(T=256, NH=12, NH_kv=4))
    assert (small["B"], small["NH_kv"], small["NH"], small["T"]) == (2, 2, 6, 256)
    grouped = BACKWARD.emulated(BACKWARD.problem(T=2048, NH=32, NH_kv=8))
    assert (grouped["B"], grouped["NH_kv"], grouped["NH"]) == (1, 2, 4)
    large = FORWARD.emulated(FORWARD.problem(T=16384))
    assert (large["B"], large["NH_kv"], large["NH"], large["T"]) == (1, 1, 1, 16384)
    assert FORWARD.emulated(FORWARD.problem(B=1, NH=1, T=8))["NH"] == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"T": 0}, "T=0 must be at least 1"),
        ({"T": -3}, "T=-3 must be at least 1"),
        ({"T": 2.5}, "T=2.5 is not a whole number"),
        ({"T": "many"}, "T='many' is not a whole number"),
        ({"T": True}, "T=True is not a whole number"),
        ({"T": float("inf")}, "T=inf is not a whole number"),
        ({"T": 1e30}, "T=1e+30 must be at most 1073741824"),
        ({"NH": 12, "NH_kv": 5}, "NH=12 is not divisible by NH_kv=5"),
        ({"dtype": "fp8"}, "dtype='fp8' is not one of fp16, bf16, fp32"),
        ({"causal": "maybe"}, "causal='maybe' is neither true nor false"),
        ({"layout": "packed", "T_kv": 5}, "T_kv=5 must equal T=1024"),
        ({"TT": 5}, "has no field 'TT'; its fields are B, NH"),
        ({"B": 2**31}, "must be at most 2147483647"),
    ],
)
def test_impossible_problems(fields: dict[str, int | str | bool], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        FORWARD.problem(**fields)
    assert message in str(caught.value)


def test_text_from_a_command_line_is_converted() -> None:
    assert FORWARD.problem(T="77", causal="false") == FORWARD.problem(T=77, causal=False)
    thousand = FORWARD.problem(T=1e3)  # what `--T 1e3` is
    assert thousand.key == FORWARD.problem(T=1000).key


def test_defaults_are_the_published_ladders() -> None:
    expected = "B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS=64 dtype=fp16 causal=1 layout=bthd"
    assert BACKWARD.problem().key == f"backward {expected}"


def test_flops_and_bytes_by_hand() -> None:
    problem = FORWARD.problem(B=2, NH=3, T=10, T_kv=20, HS=8, causal=False, dtype="fp16")
    assert FORWARD.flops(problem) == 4 * 2 * 3 * 10 * 20 * 8
    assert FORWARD.flops(problem.replace(causal=True)) == 2 * 2 * 3 * 10 * 20 * 8
    elements = 2 * 3 * 8 * (10 + 20 + 20 + 10)
    assert FORWARD.nbytes(problem) == 2 * elements + 4 * 2 * 3 * 10


def test_an_unknown_op() -> None:
    with pytest.raises(ProblemError, match="unknown op 'sideways'; known: forward, backward"):
        get_op("sideways")


def test_noise_covers_what_cancels_where_a_query_sees_one_key() -> None:
    problem = BACKWARD.problem(B=1, NH=2, T=50, T_kv=1, HS=64, dtype="fp32", causal=False)
    inputs = BACKWARD.inputs(problem, 6)
    assert np.abs(BACKWARD.reference(problem, inputs)["dk"]).max() < 1e-14
    # The same sums in another order, in fp32, as a kernel computes them.
    dp = np.einsum("bhid,bhjd->bhij", inputs["dout"], inputs["v"], dtype=np.float32)[..., 0]
    delta = sum(inputs["dout"][..., i] * inputs["out"][..., i] for i in range(64))
    ds = np.abs(dp - delta).astype(np.float64) * problem_scale(problem)
    noise = {name: scale.noise for name, scale in BACKWARD.row_scales(problem, inputs).items()}
    assert ds.max() > 0
    assert (np.abs(ds[..., None] * inputs["k"][:, :, :1]).max(axis=-1) <= noise["dq"]).all()
    assert noise["dq"].max() < 3e-4
    assert (np.abs((ds[..., None] * inputs["q"]).sum(axis=2)).max(axis=-1) <= noise["dk"][..., 0]).all()
    assert noise["dk"].max() < 2e-3


def problem_scale(problem: Problem) -> float:
    return BACKWARD.scalars(problem)["scale"]


@pytest.mark.parametrize("op", [FORWARD, BACKWARD], ids=lambda op: op.name)
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_hard_inputs_hide_nan_in_the_first_unit_or_in_the_last(op: Op, heads: int) -> None:
    """What must be computed again lies at either end of a grid, by the seed."""
    for B, seed in ((1, 4), (1, 5), (2, 6), (2, 7)):
        problem = op.problem(B=B, NH=2 * heads, NH_kv=heads, T=9, T_kv=12, HS=8)
        inputs = make_inputs(op, problem, seed, hard=True)
        units = [op.unit(problem, inputs, number) for number in range(op.units(problem))]
        broken = [sum(bool(np.isnan(array).any()) for array in unit.values()) for unit in units]
        assert broken == [int(number == (len(units) - 1) * (seed % 2)) for number in range(len(units))]
