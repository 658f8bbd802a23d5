"""Ops that a user's template declares."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.core.errors import ProblemError, TemplateError, UsageError
from autotune.core.plan import ScalarArg
from autotune.core.values import Value
from autotune.families.op_ref import OpRef
from autotune.families.planning import make_plan
from autotune.families.space import Space
from autotune.families.template import find_template, load_template
from autotune.families.user_functions import load_function
from autotune.families.user_op import CustomOp
from autotune.gpus.known import gpu
from autotune.ops import registry
from autotune.ops.op import Arrays
from autotune.ops.registry import register
from autotune.tuning.choose import choose_subject
from tests.small_templates import MakeTemplate

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

def fails_below(problem, inputs):
    import numpy
    return numpy.reshape(inputs["x"], (3, 3))

constant = 3
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops that a test registers go when it ends."""
    monkeypatch.setattr(registry, "_OPS", dict(registry._OPS))


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
    op = CustomOp(load_template(op_path), load_function(f"double_reference:{function}", op_path.parent)[0])
    problem = op.problem()
    with pytest.raises(UsageError, match=message):
        op.reference(problem, op.inputs(problem, 0))


def test_a_reference_that_raises_in_a_library(op_path: Path) -> None:
    op = CustomOp(load_template(op_path), load_function("double_reference:fails_below", op_path.parent)[0])
    problem = op.problem()
    with pytest.raises(UsageError, match=r"raised ValueError: cannot reshape .*, double_reference.py, line 14"):
        op.reference(problem, op.inputs(problem, 0))


def test_a_field_with_a_point_is_a_float(make_template: MakeTemplate) -> None:
    front = FRONT.replace("flip = false", "eps = 1e-6")
    launch = '"total", "cols"]'
    template = make_template(front, "", launch, '"total", "cols", "eps", "1.0 * rows", "2 * eps"]', "double")
    seen: list[object] = []

    def reference(problem: dict[str, Value], inputs: Arrays) -> dict[str, Any]:
        seen.append(problem["eps"])
        return {"y": inputs["x"] + float(problem["eps"]), "total": inputs["x"].sum(axis=1)}

    op = register(CustomOp(template, reference))
    problem = op.problem()
    assert problem.key == "double rows=4 cols=8 eps=1e-06 dtype=fp32"
    assert (op.scalars(problem), op.exact_fields) == ({"eps": 1e-6}, ("eps", "dtype"))
    assert isinstance(op.problem(eps=1)["eps"], float)
    assert isinstance(op.problem(eps="1")["eps"], float)
    with pytest.raises(ProblemError, match="eps='small' is not a finite number"):
        op.problem(eps="small")
    op.reference(problem, op.inputs(problem, 0))
    assert set(seen) == {1e-6}
    plan = make_plan(template, op, problem, Space(template, problem, gpu("h200")).namespace({}))
    assert plan.launches[0].args[-4:] == (
        ScalarArg("cols", "int", 8), ScalarArg("eps", "float", 1e-6), ScalarArg("1.0 * rows", "float", 4.0),
        ScalarArg("2 * eps", "float", 2e-6),
    )  # fmt: skip


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
        load_function(text, op_path.parent)


def test_a_custom_op_needs_a_reference(op_path: Path) -> None:
    with pytest.raises(UsageError, match="give its CPU reference with --reference"):
        OpRef("double", op_path).resolve()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows = 4", "rows = '4'", r"\[problem\] rows='4': a field is a number"),
        ("rows = 4", "rows = inf", r"\[problem\] rows=inf: a field is a number"),
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


def test_records_checked_against_an_older_reference_do_not_count(op_path: Path) -> None:
    def version() -> str:
        return choose_subject(None, [str(op_path)], "double_reference:double").templates[0].hash

    before = version()
    assert version() == before
    module = op_path.parent / "double_reference.py"
    module.write_text(module.read_text().replace("2 * inputs", "3 * inputs"))
    assert version() != before


def test_built_in_ops_have_no_reference_of_their_own() -> None:
    for template in choose_subject("forward").templates:
        assert template.hash == find_template("forward", template.name).hash
