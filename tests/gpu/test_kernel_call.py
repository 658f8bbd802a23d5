"""`autotune.kernel` on a GPU: PyTorch tensors where they lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.core.errors import UsageError
from autotune.ops.registry import get_op

pytestmark = pytest.mark.gpu
FIELDS: dict[str, Any] = {"B": 2, "NH": 3, "T": 200, "HS": 64, "dtype": "fp16"}


@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("side_stream", [False, True])
def test_pytorch_tensors_in_place(tmp_path: Path, op: str, side_stream: bool) -> None:
    torch = pytest.importorskip("torch")
    problem = get_op(op).problem(**FIELDS)
    inputs = get_op(op).inputs(problem, 1)
    kernel = autotune.kernel(op=op, device="cuda", db=tmp_path / "none.db", **FIELDS)
    stream = torch.cuda.Stream() if side_stream else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        tensors = {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}
        tensors["q"] = tensors["q"].transpose(1, 2).contiguous().transpose(1, 2)  # other strides than k and v
        results = {name: tensor.float().cpu().numpy() for name, tensor in kernel(**tensors).items()}
    reference, rough = get_op(op).reference(problem, inputs), get_op(op).low_precision(problem, inputs)
    for name, expected in reference.items():
        bound = 3 * np.abs(rough[name] - expected).max() + 1e-4
        assert np.abs(results[name] - expected).max() <= bound, name


def test_numpy_arrays_are_copied(tmp_path: Path) -> None:
    problem = get_op("forward").problem(**FIELDS)
    inputs = get_op("forward").inputs(problem, 1)
    result = autotune.kernel(op="forward", device="cuda", db=tmp_path / "none.db", **FIELDS)(**inputs)
    np.testing.assert_allclose(result["out"], get_op("forward").reference(problem, inputs)["out"], atol=4e-3)


def test_mixed_arrays_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    inputs = get_op("forward").inputs(get_op("forward").problem(**FIELDS), 1)
    kernel = autotune.kernel(op="forward", device="cuda", db=tmp_path / "none.db", **FIELDS)
    with pytest.raises(UsageError, match="cannot be mixed"):
        kernel(q=torch.from_numpy(inputs["q"]).cuda(), k=inputs["k"], v=inputs["v"])
