"""The field HS_v: what problems say of it, the tensors, the work, and the formula."""

from typing import Any

import numpy as np
import pytest

from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.ops.awkward import awkward_problems, second_problems
from autotune.ops.registry import get_op, problem_of, stored_problem
from tests.ops.test_attention_reference import plain

FORWARD, BACKWARD = get_op("forward"), get_op("backward")
KEY = "forward B=4 NH=12 NH_kv=12 T=1024 T_kv=1024 HS={} dtype=fp16 causal=1 layout=bthd"


def test_a_problem_says_it_where_it_is_another_size() -> None:
    same, other = FORWARD.problem(HS=192), FORWARD.problem(HS=192, HS_v=128)
    assert (same.key, other.key) == (KEY.format("192"), KEY.format("192 HS_v=128"))
    assert (same["HS_v"], other["HS_v"]) == (192, 128)
    assert ("HS_v" in same.to_json(), other.to_json()["HS_v"]) == (False, 128)
    assert list(same.fields)[5:7] == list(other.fields)[5:7] == ["HS", "HS_v"]
    assert same == FORWARD.problem(HS=192, HS_v=192) == problem_of(same.key) == other.replace(HS_v=192)
    assert other == problem_of(other.key) == same.replace(HS_v=128) == FORWARD.problem(**other.fields)
    assert same.replace(HS=64) == FORWARD.problem(HS=64)
    assert other.replace(HS=128) == FORWARD.problem(HS=128)
    with pytest.raises(ProblemError, match="HS_v=0 must be at least 1"):
        FORWARD.problem(HS_v=0)


def test_records_of_before_the_field_are_of_the_same_problems() -> None:
    old: dict[str, Value] = {
        "B": 4,
        "NH": 12,
        "NH_kv": 12,
        "T": 1024,
        "T_kv": 1024,
        "HS": 64,
        "dtype": "fp16",
        "causal": True,
    }
    found = stored_problem("forward", {**old, "layout": "bthd"})
    assert (found, found["HS_v"]) == (FORWARD.problem(), 64)
    assert stored_problem("copy", {"HS": 64}) == Problem("copy", (("HS", 64),))
    with pytest.raises(ProblemError, match="has no field 'HS_v'"):
        stored_problem("permute", {"HS": 64})["HS_v"]


def test_values_and_results_have_its_columns() -> None:
    shape: dict[str, Value] = {"B": 2, "NH": 4, "NH_kv": 2, "T": 3, "T_kv": 5, "HS": 24, "HS_v": 16}
    columns = {t.name: t.shape[-1] for t in BACKWARD.tensors(BACKWARD.problem(**shape)) if t.name != "lse"}
    assert {name for name, size in columns.items() if size == 16} == {"v", "out", "dout", "dv"}
    assert {name for name, size in columns.items() if size == 24} == {"q", "k", "dq", "dk"}
    packed = FORWARD.problem(**{**shape, "T_kv": 3, "layout": "packed"})
    places = {t.name: (t.strides, t.offset, t.storage) for t in FORWARD.tensors(packed)}
    row = 4 * 24 + 2 * 24 + 2 * 16
    assert places["k"] == ((3 * row, 24, row, 1), 96, "qkv")
    assert places["v"] == ((3 * row, 16, row, 1), 144, "qkv")
    assert places["out"] == ((3 * 4 * 16, 16, 4 * 16, 1), 0, "out")
    assert FORWARD.scalars(packed) == {"scale": float(np.float32(24**-0.5))}


def test_work_counts_each_product_by_its_own_size() -> None:
    pairs = 4 * 12 * 1024 * 1024 / 2
    shape: dict[str, Any] = {"HS": 192, "HS_v": 128}
    assert FORWARD.flops(FORWARD.problem(**shape)) == 2 * pairs * (192 + 128)
    assert BACKWARD.flops(BACKWARD.problem(**shape)) == 2 * pairs * (3 * 192 + 2 * 128)
    assert FORWARD.flops(FORWARD.problem(HS=64)) == 4 * pairs * 64
    assert BACKWARD.flops(BACKWARD.problem(HS=64)) == 10 * pairs * 64
    rows = 4 * 12 * 1024
    assert FORWARD.nbytes(FORWARD.problem(**shape)) == 2 * rows * (2 * 192 + 2 * 128) + 4 * rows


@pytest.mark.parametrize("HS_v", [3, 13])
def test_the_references_are_the_formula_and_its_derivative(HS_v: int) -> None:
    shape: dict[str, Any] = {"B": 1, "NH": 2, "NH_kv": 1, "T": 4, "T_kv": 5, "HS": 8, "HS_v": HS_v, "dtype": "fp32"}
    forward, backward = FORWARD.problem(**shape), BACKWARD.problem(**shape)
    inputs = {name: array.astype(np.float64) for name, array in BACKWARD.inputs(backward, 2).items()}
    inputs["out"], inputs["lse"] = plain(inputs, forward)
    got = FORWARD.reference(forward, {name: inputs[name] for name in "qkv"})
    np.testing.assert_allclose(got["out"], inputs["out"], rtol=1e-12, atol=1e-13)
    assert BACKWARD.row_scales(backward, inputs).keys() == {"dq", "dk", "dv"}
    gradients = BACKWARD.reference(backward, inputs)
    for name in ("q", "k", "v"):
        at = (0, 0, 1, 2)
        sums = []
        for step in (1e-5, -1e-5):
            moved = {**inputs, name: inputs[name].copy()}
            moved[name][at] += step
            sums.append(float((plain(moved, forward)[0] * inputs["dout"]).sum()))
        np.testing.assert_allclose(gradients[f"d{name}"][at], (sums[0] - sums[1]) / 2e-5, rtol=1e-6, atol=1e-9)


def test_awkward_problems_have_such_values_too() -> None:
    sizes = {(p["HS"], p["HS_v"]) for p in awkward_problems("forward") if p["HS_v"] != p["HS"]}
    assert len(sizes) >= 3
    problem = FORWARD.problem(HS=192, HS_v=128)
    assert {(p["HS"], p["HS_v"]) for p in second_problems(FORWARD, problem)} == {(192, 128)}
