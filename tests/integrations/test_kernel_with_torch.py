"""`autotune.kernel` with PyTorch's tensors on the CPU, bf16 included, and with arrays that have DLPack alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")

import autotune  # noqa: E402
from autotune.answers import dlpack  # noqa: E402
from autotune.answers.arrays import DeviceArray, describe, host_view, is_on_device  # noqa: E402
from autotune.core.errors import UsageError  # noqa: E402
from autotune.ops.registry import get_op  # noqa: E402

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "NH_kv": 1, "T": 40, "T_kv": 40, "HS": 32}


class OnlyDlpack:
    """An array of a library that has no other interface."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def tensors(op: str, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
    problem = get_op(op).problem(**FIELDS, dtype=dtype)
    inputs = get_op(op).inputs(problem, 1)
    kinds = {name: torch.float32 if name == "lse" else getattr(torch, str(inputs["q"].dtype)) for name in inputs}
    given = {name: torch.tensor(array.astype(np.float32)).to(kinds[name]) for name, array in inputs.items()}
    return given, get_op(op).reference(problem, inputs)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_tensors_in_and_out(op: str, dtype: str, tmp_path: Path) -> None:
    kernel = autotune.kernel(op, device="cpu", db=tmp_path / "none.db", dtype=dtype, **FIELDS)
    given, expected = tensors(op, dtype)
    given["q"] = given["q"].transpose(1, 2).contiguous().transpose(1, 2)
    results = kernel(**given)
    bound = {"fp32": 2e-5, "fp16": 1e-2, "bf16": 6e-2}[dtype]
    for name, array in expected.items():
        assert isinstance(results[name], torch.Tensor)
        assert results[name].dtype == (torch.float32 if name == "lse" else given["q"].dtype)
        np.testing.assert_allclose(results[name].double().numpy(), array, atol=bound)
    out = torch.full(given["q"].shape, torch.nan, dtype=given["q"].dtype)
    name = kernel.outputs[0]
    assert kernel(**given, **{name: out})[name] is out
    torch.testing.assert_close(out, results[name], atol=bound, rtol=0)


def test_arrays_by_dlpack(tmp_path: Path) -> None:
    kernel = autotune.kernel("forward", device="cpu", db=tmp_path / "none.db", dtype="bf16", **FIELDS)
    given, expected = tensors("forward", "bf16")
    result = kernel(**{name: OnlyDlpack(tensor) for name, tensor in given.items()})["out"]
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result.astype(np.float64), expected["out"], atol=6e-2)


def test_what_dlpack_says() -> None:
    tensor = torch.arange(24, dtype=torch.bfloat16).reshape(2, 3, 4)[:, 1:, ::2]
    array = OnlyDlpack(tensor)
    said = describe(array)
    assert said == DeviceArray(tensor.data_ptr(), (2, 2, 2), (12, 4, 2), "bf16", None)
    assert not is_on_device(array)
    np.testing.assert_array_equal(host_view(array).astype(np.float32), tensor.float().numpy())
    assert dlpack.exported(array, None).device_type == dlpack.CPU
    with pytest.raises(UsageError, match="elements of DLPack type 5 with 64 bits are not supported"):
        describe(OnlyDlpack(torch.zeros(3, dtype=torch.complex64)))
    with pytest.raises(UsageError, match="gives no DLPack capsule"):
        describe(OnlyDlpack(torch.zeros(3, requires_grad=True)))
