"""`autotune.kernel`: the best configuration as a callable, on the emulator."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.core.errors import DeviceMissing, FaultFound, UsageError
from autotune.ops.registry import get_op

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "NH_kv": 1, "T": 40, "T_kv": 40, "HS": 32, "dtype": "fp32"}


@pytest.mark.parametrize("layout", ["bthd", "packed"])
def test_forward_and_backward_from_numpy(tmp_path: Path, layout: str) -> None:
    fields = {**FIELDS, "layout": layout}
    for name in ("forward", "backward"):
        op = get_op(name)
        problem = op.problem(**fields)
        inputs = op.inputs(problem, 1)
        kernel = autotune.kernel(op=name, device="cpu", db=tmp_path / "none.db", **fields)
        assert set(kernel.inputs) == set(inputs)
        results = kernel(**inputs)
        again = kernel(**inputs)
        for output, expected in op.reference(problem, inputs).items():
            assert results[output].shape == kernel.shape(output)
            np.testing.assert_allclose(results[output], expected, atol=2e-5)
            np.testing.assert_allclose(again[output], expected, atol=2e-5)


def test_a_kernel_verifies_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = autotune.kernel(op="forward", device="cpu", db=tmp_path / "none.db", **FIELDS)
    verified = kernel.verify()
    assert verified.passed
    assert [check.name for check in verified.checks] == ["out", "lse"]
    body = kernel.best.source.body
    wrong = replace(
        kernel.best.source, body=body.replace("a.scale", "2.0f * a.scale").replace(", scale)", ", 2.0f * scale)")
    )
    assert wrong.body != body
    monkeypatch.setitem(vars(kernel.best), "source", wrong)
    with pytest.raises(FaultFound, match=r"out: error .* bound"):
        kernel.verify()


def test_outputs_are_written_where_asked(tmp_path: Path) -> None:
    op = get_op("forward")
    problem = op.problem(**FIELDS)
    inputs = op.inputs(problem, 1)
    kernel = autotune.kernel(op="forward", device="cpu", db=tmp_path / "none.db", **FIELDS)
    out = np.full(kernel.shape("out"), np.nan, np.float32)
    assert kernel(**inputs, out=out)["out"] is out
    np.testing.assert_allclose(out, op.reference(problem, inputs)["out"], atol=2e-5)


def test_wrong_calls(tmp_path: Path) -> None:
    kernel = autotune.kernel(op="forward", device="cpu", db=tmp_path / "none.db", **FIELDS)
    inputs = get_op("forward").inputs(get_op("forward").problem(**FIELDS), 1)
    with pytest.raises(UsageError, match="forward needs 'v'; it takes q, k, v"):
        kernel(q=inputs["q"], k=inputs["k"])
    with pytest.raises(UsageError, match="no argument 'x'"):
        kernel(**inputs, x=1)
    with pytest.raises(
        UsageError, match=r"v has shape \(1, 1, 39, 32\); the kernel takes \(1, 1, 40, 32\) with B=1, .*T_kv=40"
    ):
        kernel(**{**inputs, "v": inputs["v"][:, :, :39]})
    with pytest.raises(UsageError, match=r"q has shape \(1, 2, 40, 16\); the kernel takes \(1, 2, 40, 32\)"):
        kernel(**{**inputs, "q": inputs["q"][..., :16]})
    with pytest.raises(UsageError, match=r"kernel takes \(1, 1, 40, 32\), or \(1, 1, 50, 32\) with .*T_kv=50 as the"):
        kernel(**{**inputs, "k": np.zeros((1, 1, 50, 32), np.float32)})
    with pytest.raises(UsageError, match="NH=3 is not divisible by NH_kv=2"):
        kernel(q=np.zeros((1, 3, 40, 32), np.float32), k=np.zeros((1, 2, 40, 32), np.float32), v=inputs["v"])
    with pytest.raises(UsageError, match=r"k has shape .* and dtype float64"):
        kernel(**{**inputs, "k": inputs["k"].astype(np.float64)})
    with pytest.raises(UsageError, match="list is no array"):
        kernel(**{**inputs, "k": [1.0]})


@pytest.mark.parametrize("name", ["forward", "backward"])
@pytest.mark.parametrize("empty", ["B", "NH", "T", "T_kv"])
def test_empty_arrays_are_refused_before_anything_is_built(
    name: str, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = get_op(name)
    kernel = autotune.kernel(op=name, device="cpu", db=tmp_path / "none.db", **{**FIELDS, "NH_kv": 2})
    monkeypatch.setattr(kernel, "_runner", None)
    sizes = {"B": 1, "NH": 2, "T": 40, "T_kv": 40, empty: 0}
    arrays = {}
    for tensor in op.tensors(kernel.best.problem):
        length = "T_kv" if tensor.name in ("k", "v") else "T"
        shape = (sizes["B"], sizes["NH"], sizes[length], 32)[: len(tensor.shape)]
        if tensor.role == "input":
            arrays[tensor.name] = np.zeros(shape, np.float32)
    with pytest.raises(
        UsageError, match=r"has shape \(.*0.*\): of an empty array nothing is computed, skip such calls"
    ):
        kernel(**arrays)


@pytest.mark.parametrize("fields", [{"B": 0}, {"T": 0}, {"T_kv": 0}, {"NH": 0}, {"T": 2**30 + 1}, {"B": 2**31}])
def test_problems_that_are_none_are_refused_with_the_value(fields: dict[str, Any], tmp_path: Path) -> None:
    [(name, value)] = fields.items()
    limit = "at least 1" if value == 0 else "at most"
    for ask in (autotune.best, autotune.kernel):
        with pytest.raises(UsageError, match=f"{name}={value} must be {limit}"):
            ask("forward", device="h200" if ask is autotune.best else "cpu", db=tmp_path / "none.db", **fields)


@pytest.mark.parametrize("layout", ["bthd", "packed"])
def test_other_lengths_than_those_asked_for(tmp_path: Path, layout: str) -> None:
    op = get_op("forward")
    kernel = autotune.kernel(op="forward", device="cpu", db=tmp_path / "none.db", **{**FIELDS, "layout": layout})
    lengths = {"T": 21, "T_kv": 21} if layout == "packed" else {"T": 21, "T_kv": 30}
    problem = op.problem(**{**FIELDS, "layout": layout, "B": 2, "NH": 3, "NH_kv": 3, **lengths})
    inputs = op.inputs(problem, 1)
    result = kernel(**inputs)
    np.testing.assert_allclose(result["out"], op.reference(problem, inputs)["out"], atol=2e-5)
    assert kernel.best.problem == op.problem(**{**FIELDS, "layout": layout})


def test_what_it_is(tmp_path: Path) -> None:
    text = repr(autotune.kernel(op="forward", device="cpu", db=tmp_path / "none.db", **FIELDS))
    assert text.startswith("<autotune kernel forward B=1 NH=2 NH_kv=1 T=40 T_kv=40 HS=32 dtype=fp32 causal=1")
    assert "on the emulator for NVIDIA H200, " in text
    assert "q (1, 2, 40, 32), k (1, 1, 40, 32)" in text


def test_threads(tmp_path: Path) -> None:
    """One kernel called from four threads at once, each with values and a length of its own."""
    op = get_op("forward")
    kernel = autotune.kernel(op="forward", device="cpu", db=tmp_path / "none.db", **FIELDS)
    problems = [op.problem(**{**FIELDS, "T": 40 + 3 * number}) for number in range(4)]
    inputs = [op.inputs(problem, seed) for seed, problem in enumerate(problems)]
    expected = [op.reference(problem, given)["out"] for problem, given in zip(problems, inputs, strict=True)]
    together = threading.Barrier(4)

    def call(given: dict[str, Any]) -> list[Any]:
        together.wait()
        return [kernel(**given)["out"] for _ in range(15)]

    with ThreadPoolExecutor(4) as pool:
        for results, right in zip(pool.map(call, inputs), expected, strict=True):
            for result in results:
                np.testing.assert_allclose(result, right, atol=2e-5)


def test_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a kernel runs on 'cuda' or 'cpu'"):
        autotune.kernel(op="forward", device="tpu")
    with pytest.raises(UsageError, match="a kernel runs on 'cuda' or 'cpu'"):
        autotune.kernel(op="forward", device="cpu:h200")
    monkeypatch.setattr("autotune.gpus.present.present_gpu", lambda index=0: None)
    with pytest.raises(DeviceMissing):
        autotune.kernel(op="forward", device="cuda", db=tmp_path / "none.db")
