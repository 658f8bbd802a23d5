"""`autotune.kernel`: the best configuration as a callable, on the emulator."""

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
    with pytest.raises(UsageError, match=r"q has shape \(1, 2, 39, 32\) and dtype float32; the kernel takes"):
        kernel(**{**inputs, "q": inputs["q"][:, :, :39]})
    with pytest.raises(UsageError, match=r"k has shape .* and dtype float64"):
        kernel(**{**inputs, "k": inputs["k"].astype(np.float64)})


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="a kernel runs on 'cuda' or 'cpu'"):
        autotune.kernel(op="forward", device="tpu")
    monkeypatch.setattr("autotune.gpus.present.present_gpu", lambda index=0: None)
    with pytest.raises(DeviceMissing):
        autotune.kernel(op="forward", device="cuda")
