"""Ops that a user's template declares."""

from pathlib import Path

import numpy as np
import pytest

from autotune.errors import ProblemError, TemplateError, UsageError
from autotune.ops.custom import CustomOp, load_reference
from autotune.ops.locate import OpRef
from autotune.template import load_template
from tests.cpu.conftest import MakeTemplate

FRONT = """summary = "doubles and sums"
op = "double"
[problem]
rows = 4
cols = 8
flip = false
dtype = ["fp32", "fp16"]
[tensors]
x = { shape = ["rows", "cols"], role = "input" }
w = { shape = ["cols"], dtype = "fp32", role = "input" }
y = { shape = ["rows", "cols"], role = "output" }
total = { shape = ["rows"], dtype = "fp32", role = "output" }
[cost]
flops = "3 * rows * cols"
[[launch]]
kernel = "k"
grid = ["rows"]
block = ["32"]
args = ["x", "w", "y", "total", "cols"]
"""

MODULE = """
def double(problem, inputs):
    y = 2 * inputs["x"] * inputs["w"]
    return {"y": y, "total": y.sum(axis=1)}

def short(problem, inputs):
    return {"y": inputs["x"]}

def bent(problem, inputs):
    return {"y": inputs["x"][0], "total": inputs["x"][:, 0]}

constant = 3
"""


@pytest.fixture
def op_path(make_template: MakeTemplate, tmp_path: Path) -> Path:
    (tmp_path / "double_reference.py").write_text(MODULE)
    return make_template(FRONT, name="double").path


def test_a_declared_op(op_path: Path) -> None:
    op = OpRef("double", op_path, "double_reference:double").resolve()
    problem = op.problem(rows=3)
    assert problem.key == "double rows=3 cols=8 flip=0 dtype=fp32"
    assert [(t.name, t.shape, t.strides, t.dtype, t.role) for t in op.tensors(problem.replace(dtype="fp16"))] == [
        ("x", (3, 8), (8, 1), "fp16", "input"),
        ("w", (8,), (1,), "fp32", "input"),
        ("y", (3, 8), (8, 1), "fp16", "output"),
        ("total", (3,), (1,), "fp32", "output"),
    ]
    assert op.flops(problem) == 72
    assert op.exact_fields == ("flip", "dtype")
    inputs = op.inputs(problem, 0)
    result = op.reference(problem, inputs)
    np.testing.assert_allclose(result["y"], 2.0 * inputs["x"] * inputs["w"], rtol=1e-6)
    assert result["y"].dtype == np.float64


def test_low_precision_rounds_to_each_output(op_path: Path) -> None:
    op = OpRef("double", op_path, "double_reference:double").resolve()
    problem = op.problem(dtype="fp16")
    inputs = op.inputs(problem, 0)
    rough, exact = op.low_precision(problem, inputs), op.reference(problem, inputs)
    np.testing.assert_array_equal(rough["y"], rough["y"].astype(np.float16))
    assert 0 < np.abs(rough["y"] - exact["y"]).max() < 0.01
    assert 0 < np.abs(rough["total"] - exact["total"]).max() < 1e-5


@pytest.mark.parametrize(
    ("function", "message"),
    [("short", "must return total with shape"), ("bent", r"must return y with shape \(4, 8\), got \(8,\)")],
)
def test_a_reference_that_returns_the_wrong_thing(op_path: Path, function: str, message: str) -> None:
    op = CustomOp(load_template(op_path), load_reference(f"double_reference:{function}", op_path.parent))
    problem = op.problem()
    with pytest.raises(UsageError, match=message):
        op.reference(problem, op.inputs(problem, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("double_reference", "must be module:function"),
        ("double_reference:", "must be module:function"),
        ("absent_module:f", "cannot be loaded: No module named"),
        ("double_reference:absent", "cannot be loaded: .*has no attribute"),
        ("double_reference:constant", "is not a function"),
    ],
)
def test_references_that_cannot_be_loaded(op_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_reference(text, op_path.parent)


def test_a_custom_op_needs_a_reference(op_path: Path) -> None:
    with pytest.raises(UsageError, match="give its CPU reference with --reference"):
        OpRef("double", op_path).resolve()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows = 4", "rows = 4.5", r"\[problem\] rows=4.5: a field is a whole number"),
        ('role = "output"', 'role = "input"', "with at least one output"),
    ],
)
def test_wrong_declarations(make_template: MakeTemplate, old: str, new: str, message: str) -> None:
    template = make_template(FRONT, old=old, new=new, name="double")
    with pytest.raises(TemplateError, match=message):
        CustomOp(template, lambda _problem, inputs: inputs)


def test_fields_are_checked(op_path: Path) -> None:
    op = OpRef("double", op_path, "double_reference:double").resolve()
    with pytest.raises(ProblemError, match="has no field 'T'; its fields are rows, cols, flip, dtype"):
        op.problem(T=3)
    with pytest.raises(ProblemError, match="dtype='bf16' is not one of fp32, fp16"):
        op.problem(dtype="bf16")
