"""References and functions for inputs: what they may return, and what a change of them changes."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotune.core.errors import TemplateError, UsageError
from autotune.core.problem import Problem
from autotune.families.op_ref import OpRef
from autotune.families.own_code import version_of
from autotune.families.template import load_template
from autotune.families.user_functions import Pickled, load_function, named
from autotune.families.user_op import CustomOp
from autotune.ops.expected import expect
from autotune.ops.op import Arrays
from tests.small_templates import MakeTemplate

FRONT = """summary = "whole numbers, in place and not"
op = "own"
[problem]
n = 8
dtype = ["fp32", "fp16", "bf16", "fp8e4m3", "fp64", "int8"]
[tensors]
x = { shape = ["n"], role = "input" }
i = { shape = ["n"], dtype = "int32", role = "input" }
s = { shape = ["n"], dtype = "fp32", role = "inout" }
y = { shape = ["n"], role = "output" }
c = { shape = ["n"], dtype = "int32", role = "output" }
[[launch]]
kernel = "k"
grid = ["1"]
block = ["32"]
args = ["x", "i", "s", "y", "c"]
"""
BODY = 'extern "C" __global__ void k(const {{ ctype }}* x, const int* i, float* s, {{ ctype }}* y, int* c) {}\n'

Made = dict[str, Any]


def fine(problem: dict[str, Any], inputs: Arrays) -> Made:
    return {"y": inputs["x"], "s": inputs["s"] * 2, "c": inputs["i"] + 1}


MakeOp = Callable[..., tuple[CustomOp, Problem]]


@pytest.fixture
def make_op(make_template: MakeTemplate) -> MakeOp:
    def make(
        reference: Callable[..., Any] = fine, inputs: Callable[..., Any] | None = None, old: str = "", new: str = "",
        dtype: str = "fp32",
    ) -> tuple[CustomOp, Problem]:  # fmt: skip
        op = CustomOp(make_template(FRONT, BODY, old, new, "own"), reference, inputs)
        return op, op.problem(dtype=dtype)

    return make


def test_whole_numbers_reach_the_reference_as_such_and_are_judged_exactly(make_op: MakeOp) -> None:
    kinds: list[set[str]] = []

    def reference(problem: Any, inputs: Arrays) -> Made:
        kinds.append({f"{name} {array.dtype}" for name, array in inputs.items()})
        return fine(problem, inputs)

    op, problem = make_op(reference)
    expected = expect(op, problem, 0)
    assert kinds[0] == {"x float64", "i int64", "s float64"}
    assert kinds[-1] == {"x float32", "i int64", "s float32"}
    [unit] = expected.units
    assert unit.bound["c"] == 0.0
    assert unit.bound["y"] == pytest.approx(
        2 * 2.0**-24 * np.abs(unit.reference["y"]).max() + 32 * 2.0**-23 * np.abs(unit.reference["y"]).max()
    )
    whole = expected.images["i"]
    assert whole.dtype == np.int32
    assert set(whole) - {0, 1, -1}, "more than rounded normal values"
    np.testing.assert_array_equal(unit.reference["c"], whole + 1.0)


def test_a_tensor_in_place_is_an_input_and_an_output(make_op: MakeOp) -> None:
    op, problem = make_op()
    assert [(t.name, t.role) for t in op.tensors(problem)] == [
        ("x", "input"), ("i", "input"), ("s (before)", "input"), ("s", "output"), ("y", "output"), ("c", "output"),
    ]  # fmt: skip
    assert op.in_place(problem) == {"s": "s (before)"}
    expected = expect(op, problem, 0)
    np.testing.assert_array_equal(expected.units[0].reference["s"], 2.0 * expected.images["s (before)"])


@pytest.mark.parametrize(
    ("dtype", "largest"), [("fp32", None), ("fp8e4m3", 448.0), ("fp64", None)], ids=["fp32", "fp8", "fp64"]
)
def test_bounds_go_with_the_dtype(make_op: MakeOp, dtype: str, largest: float | None) -> None:
    op, problem = make_op(lambda p, a: {**fine(p, a), "y": 1e4 * a["x"] / 3}, dtype=dtype)
    [unit] = expect(op, problem, 0).units
    size = np.abs(unit.reference["y"]).max()
    if largest is not None:
        assert size == largest, "conversions to fp8 saturate"
    relative = {"fp32": (1e-7, 1e-5), "fp8e4m3": (0.02, 0.126), "fp64": (1e-16, 1e-14)}[dtype]
    assert relative[0] < float(np.max(unit.bound["y"])) / size < relative[1]


def test_a_given_tolerance_is_the_bound(make_op: MakeOp) -> None:
    tolerance = "[tolerance]\ny = { absolute = 0.5, relative = 0.25 }\nc = { absolute = 1 }\n[[launch]]"
    op, problem = make_op(lambda p, a: {**fine(p, a), "y": np.arange(8.0)}, old="[[launch]]", new=tolerance)
    [unit] = expect(op, problem, 0).units
    np.testing.assert_array_equal(unit.bound["y"], 0.5 + 0.25 * np.arange(8.0))
    np.testing.assert_array_equal(unit.bound["c"], np.ones(8))


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        ("x = { absolute = 1 }", "names 'x', which is no output of .*there are: s, y, c"),
        ("y = { absolut = 1 }", "unknown key 'absolut'"),
        ("y = { relative = -1 }", "relative=-1 is no number from 0 on"),
        ("y = {}", "needs absolute, relative or both"),
        ("y = 1", "must be a table"),
    ],
)
def test_tolerances_that_make_no_sense(make_op: MakeOp, tolerance: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        make_op(old="[[launch]]", new=f"[tolerance]\n{tolerance}\n[[launch]]")


_UNSENDABLE = iter(range(3)), sys.stdout

_STATE = {"calls": 0}


def _counting(problem: Any, inputs: Arrays) -> Made:
    _STATE["calls"] += 1
    return {**fine(problem, inputs), "y": inputs["x"] + _STATE["calls"]}


_RANDOM = np.random.default_rng()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (lambda a: _RANDOM.standard_normal(8), "returns other values in y when it is called again"),
        (lambda a: a["x"].astype(np.float16), "returns y as float16, so rounded"),
        (lambda a: a["x"].astype(ml_dtypes.bfloat16), "returns y as bfloat16, so rounded"),
        (lambda a: a["x"] + 1j, "something else than numbers in y: an array of complex128"),
        (lambda a: np.ma.masked_less(a["x"], 0), "returns y as a masked array"),
        (lambda a: [[1, 2], [3]], "something else than numbers in y"),
        (lambda a: np.array([None] * 8), "something else than numbers in y: an array of object"),
        (lambda a: a["x"].astype("datetime64[s]"), "something else than numbers in y"),
        (lambda a: a["x"] + (1e6 if a["x"].dtype == np.float32 else 0), "y could not be judged: bound 2e.06"),
    ],
)
def test_results_that_judge_nothing(make_op: MakeOp, y: Callable[[Arrays], Any], message: str) -> None:
    op, problem = make_op(lambda p, a: {**fine(p, a), "y": y(a)})
    with pytest.raises(UsageError, match=message):
        expect(op, problem, 0)


def test_a_reference_that_counts_its_calls(make_op: MakeOp) -> None:
    op, problem = make_op(_counting)
    with pytest.raises(UsageError, match="called again with the same inputs, 1 apart"):
        expect(op, problem, 0)


@pytest.mark.parametrize(
    ("c", "message"),
    [
        (lambda a: a["x"] + 0.5, r"in c\[0\], which is int32: whole numbers from -2147483648 to 2147483647"),
        (lambda a: np.full(8, 2**31), r"returns 2147483648 in c\[0\]"),
        (lambda a: np.full(8, np.inf), r"returns inf in c\[0\]"),
    ],
)
def test_whole_numbers_that_are_none(make_op: MakeOp, c: Callable[[Arrays], Any], message: str) -> None:
    op, problem = make_op(lambda p, a: {**fine(p, a), "c": c(a)})
    with pytest.raises(UsageError, match=message):
        expect(op, problem, 0)


def test_inputs_of_ones_own_and_random_ones_beside(make_op: MakeOp) -> None:
    op, problem = make_op(inputs=lambda p, seed: {"i": np.arange(p["n"]) + seed, "s": np.ones(8)})
    made = op.inputs(problem, 5)
    np.testing.assert_array_equal(made["i"], np.arange(8) + 5)
    assert made["i"].dtype == np.dtype(np.int32)
    assert made["s (before)"].dtype == np.dtype(np.float32)
    assert made["x"].std() > 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (lambda p, seed: 1 / 0, "function for inputs of op 'own' raised ZeroDivisionError"),
        (lambda p, seed: np.ones(8), "must return arrays by name, some of x, i, s; got ndarray"),
        (lambda p, seed: {"y": np.ones(8)}, r"some of x, i, s; got \['y'\]"),
        (lambda p, seed: {"x": np.ones(7)}, r"must return x with shape \(8,\), got \(7,\)"),
        (lambda p, seed: {"i": np.full(8, 0.5)}, r"returns 0.5 in i\[0\], which is int32"),
        (lambda p, seed: {"x": _RANDOM.standard_normal(8)}, "gives another x for the same seed"),
    ],
)
def test_inputs_that_are_none(make_op: MakeOp, inputs: Callable[..., Any], message: str) -> None:
    op, problem = make_op(inputs=inputs)
    with pytest.raises(UsageError, match=message):
        op.inputs(problem, 0)


def test_the_front_matter_names_the_functions(make_template: MakeTemplate, tmp_path: Path) -> None:
    (tmp_path / "own_functions.py").write_text(
        "def f(problem, inputs):\n    return {'y': inputs['x'], 's': inputs['s'], 'c': inputs['i']}\n"
        "def g(problem, seed):\n    return {'i': [seed] * problem['n']}\n"
    )
    names = 'op = "own"\nreference = "own_functions:f"\ninputs = "own_functions:g"'
    path = make_template(FRONT, BODY, 'op = "own"', names, "own").path
    op = OpRef("own", path).resolve()
    problem = op.problem()
    np.testing.assert_array_equal(op.inputs(problem, 3)["i"], [3] * 8)
    assert set(op.reference(problem, op.inputs(problem, 3))) == {"y", "s", "c"}
    other = OpRef("own", path, named(fine)).resolve()
    assert other.version != op.version


@pytest.mark.parametrize("what", ["reference", "inputs"])
def test_functions_of_the_front_matter_that_are_not_there(
    what: str, make_template: MakeTemplate, tmp_path: Path
) -> None:
    (tmp_path / "there.py").write_text("def f(problem, inputs):\n    return {}\n")
    names = {"reference": "there:f", what: "absent_module:f"}
    said = "\n".join(f'{name} = "{function}"' for name, function in names.items())
    path = make_template(FRONT, BODY, 'op = "own"', f'op = "own"\n{said}', "own").path
    with pytest.raises(UsageError, match=rf"own.cu.j2: {what} 'absent_module:f' cannot be loaded: No module named"):
        OpRef("own", path).resolve()


def test_built_in_ops_make_their_own_inputs_and_bounds(make_template: MakeTemplate) -> None:
    path = make_template(old='op = "forward"', new='op = "forward"\ninputs = "module:f"').path
    with pytest.raises(UsageError, match="op 'forward' is built in and makes its own inputs"):
        OpRef("forward", path).resolve()
    bound = "[tolerance]\nout = { absolute = 1 }\n[params]"
    with pytest.raises(TemplateError, match="a built-in op judges its results by itself"):
        make_template(old="[params]", new=bound)


def test_a_function_by_value_is_loaded_in_another_process(tmp_path: Path) -> None:
    factor = 3.0
    sent = named(lambda problem, inputs: inputs["x"] * factor)
    assert isinstance(sent, Pickled)
    (tmp_path / "sent").write_bytes(sent.data)
    code = f"import pickle; f = pickle.load(open({str(tmp_path / 'sent')!r}, 'rb')); print(f({{}}, {{'x': 2.0}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "6.0\n"
    loaded, version = load_function(sent, tmp_path)
    assert (loaded({}, {"x": 1.0}), version) == (3.0, sent.version)


@pytest.mark.parametrize(
    ("given", "message"),
    [(7, "neither a function nor"), (lambda p, a: _UNSENDABLE, "cannot be sent to another process")],
)
def test_what_is_no_function(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        named(given)


class _Scaled:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, problem: Any, inputs: Arrays) -> Any:
        return inputs["x"] * self.by


def _partly(*given: Any, k: Any = None) -> Any:
    return given, k


def _made(by: Any) -> Callable[..., Any]:
    return lambda problem, inputs: inputs["x"] * by


def _executed(text: str) -> Callable[..., Any]:
    """As a notebook's cell makes one."""
    names: dict[str, Any] = {"__name__": "__main__", "np": np}
    exec(compile(text, f"<cell {abs(hash(text))}>", "exec"), names)
    function: Callable[..., Any] = names["f"]
    return function


_HELPED = "def h(x):\n    return x * {}\n\n\ndef f(problem, inputs):\n    return h(inputs['x'])\n"


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (_Scaled(2.0), _Scaled(2.0), _Scaled(3.0)),
        (functools.partial(_partly, 1), functools.partial(_partly, 1), functools.partial(_partly, 2)),
        (
            functools.partial(_partly, k=[1, 2, 1]),
            functools.partial(_partly, k=[1, 2, 1]),
            functools.partial(_partly, k=[1, 2, 2]),
        ),
        (_made(2.0), _made(2.0), _made(3.0)),
        (_Scaled(2.0).__call__, _Scaled(2.0).__call__, _Scaled(3.0).__call__),
        (_made(np.arange(3)), _made(np.arange(3)), _made(np.array([0, 2, 1]))),
        (_executed(_HELPED.format(2)), _executed("\n\n" + _HELPED.format(2)), _executed(_HELPED.format(3))),
    ],
    ids=["object", "partial", "keywords", "closure", "method", "array", "helper"],
)
def test_versions_of_what_is_made_on_the_fly(one: Any, same: Any, other: Any) -> None:
    assert version_of(one) == version_of(same)
    assert version_of(one) != version_of(other)


@pytest.mark.parametrize(
    "imports",
    [
        "import helper_a\n\ndef f(p, a):\n    return helper_a.g(a)",
        "from helper_a import g\n\ndef f(p, a):\n    return g(a)",
        "def f(p, a):\n    import helper_a\n    return helper_a.g(a)",
        "from functools import partial\nfrom helper_a import g\nf = partial(g)",
        "from helper_a import g as f",
        "from package_a import inner\n\ndef f(p, a):\n    return inner.g(a)",
    ],
    ids=["module", "name", "within", "partial", "itself", "package"],
)
def test_a_changed_helper_is_another_version(
    imports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Also where another one of the user's files imports it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "package_a").mkdir()
    (tmp_path / "package_a" / "__init__.py").write_text("")
    (tmp_path / "package_a" / "inner.py").write_text("from helper_b import factor\n\ndef g(a):\n    return factor\n")
    (tmp_path / "helper_a.py").write_text("import numpy\nfrom helper_b import factor\n\ndef g(a):\n    return factor\n")
    (tmp_path / "helper_b.py").write_text("factor = 2\n")
    module = f"references_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(imports + "\n")

    def version() -> str:
        return load_function(f"{module}:f", tmp_path)[1]

    before = version()
    assert version() == before
    (tmp_path / "helper_b.py").write_text("factor = 3\n")
    assert version() != before


def test_installed_packages_are_not_the_users_own() -> None:
    assert version_of(np.linalg.norm) == version_of(np.linalg.norm)
    assert version_of(_executed("def f(p, a):\n    return np.sum(a)\n")) != version_of(
        _executed("def f(p, a):\n    return np.prod(a)\n")
    )


@pytest.mark.parametrize("dtype", ["int8", "fp8e4m3", "fp64"])
def test_inputs_of_every_dtype(make_op: MakeOp, dtype: str) -> None:
    op, problem = make_op(dtype=dtype)
    [unit] = expect(op, problem, 0).units
    assert np.isfinite(unit.reference["y"]).all()
    assert op.inputs(problem, 1)["x"].tobytes() == op.inputs(problem, 1)["x"].tobytes()
    assert op.inputs(problem, 1)["x"].tobytes() != op.inputs(problem, 2)["x"].tobytes()


def test_the_examples_reference(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "examples" / "scatter" / "scatter.cu.j2"
    op = OpRef("scatter_add", path).resolve()
    problem = op.problem(rows=64, size=8)
    inputs = op.inputs(problem, 0)
    assert load_template(path).front.flags == ("-lineinfo", "-maxrregcount={{ REGISTERS }}")
    assert 0 <= inputs["index"].min() <= inputs["index"].max() < 8
    assert op.reference(problem, inputs)["counts"].sum() == 64


def test_where_a_notebooks_function_raised(make_op: MakeOp) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("\n\ndef f(problem, inputs):\n    return inputs['z']\n", "<stdin>", "exec"), names)
    op, problem = make_op(names["f"])
    with pytest.raises(UsageError, match=r"raised KeyError: 'z', <stdin>, line 4"):
        op.reference(problem, op.inputs(problem, 0))
