"""The comparisons with PyTorch, at small sizes: everything is timed, and outputs agree."""

from pathlib import Path
from typing import Any

import pytest

from autotune.core.problem import Problem
from autotune.ops.registry import get_op

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SMALL: dict[str, Any] = {"B": 1, "NH": 2, "T": 512, "HS": 64}


def problem(op: str, dtype: str, **more: Any) -> Problem:
    return get_op(op).problem(**SMALL, dtype=dtype, **more)


@pytest.fixture(scope="module")
def lab() -> Any:
    from autotune.bench.torch_lab import open_lab

    return open_lab("cuda")


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("op", ["forward", "backward"])
def test_a_row_against_peers(op: str, dtype: str, lab: Any, tmp_path: Path) -> None:
    from autotune.bench.contender import OURS
    from autotune.bench.measured import tolerance_of
    from benchmarks.against_peers import ROUNDS, compare

    record = compare(lab, problem(op, dtype), str(tmp_path / "none.db"))
    expected = {"efficient", "math"} if dtype == "fp32" else {"flash", "cudnn", "efficient", "math"}
    assert record["ms"].keys() >= {OURS, *expected}, record["refused"]
    assert all(ms > 0 for ms in record["ms"].values())
    assert len(record["rounds"][OURS]) == ROUNDS
    assert 0 < record["difference"] <= tolerance_of(dtype)


@pytest.mark.parametrize("layout", ["bhtd", "packed"])
def test_other_layouts_agree_too(layout: str, lab: Any, tmp_path: Path) -> None:
    from benchmarks.against_peers import compare

    record = compare(lab, problem("backward", "fp16", layout=layout), str(tmp_path / "none.db"))
    assert 0 < record["difference"] <= 5e-3


@pytest.mark.parametrize("causal", [True, False])
def test_float64_values_are_the_references(causal: bool) -> None:
    """The yardstick of accuracy is computed on the GPU: it must agree with the reference that verification uses."""
    import numpy as np

    from autotune.bench.exact import exact
    from autotune.bench.torch_timing import Tensors

    small = get_op("backward").problem(B=1, NH=2, T=96, HS=32, dtype="fp32", causal=causal)
    tensors = Tensors.of(torch, small)
    inputs = {name: getattr(tensors, name).double().cpu().numpy() for name in ("q", "k", "v", "dout")}
    forward = get_op("forward").problem(**small.fields)
    forward_tensors = Tensors.of(torch, forward)
    result = get_op("forward").reference(forward, inputs)
    np.testing.assert_allclose(
        exact(torch, forward, forward_tensors).values["out"].cpu().numpy(), result["out"][0][:, None], atol=1e-13
    )
    expected = get_op("backward").reference(small, {**inputs, **result})
    for name, values in exact(torch, small, tensors).values.items():
        np.testing.assert_allclose(values.cpu().numpy(), expected[name][0][:, None], atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_errors_of_an_output_are_compared(dtype: str) -> None:
    from benchmarks.accuracy import YARDSTICK, by_pytorch, compare

    found = compare(problem("backward", dtype), lambda p, t: ("itself", by_pytorch(YARDSTICK[dtype])(p, t)))
    assert [one.output for one in found] == ["dq", "dk", "dv"]
    assert all(one.passed for one in found)
    assert all(0.5 < ratio < 2 for one in found for ratio in one.ratios)


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_bench_compares_all_on_a_gpu(op: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from autotune.cli.main import run

    sizes = ["--B", "1", "--NH", "4", "--NH-kv", "2", "--T", "256,500", "--dtype", "bf16"]
    assert run(["bench", "--op", op, *sizes, "--rounds", "2", "--db", str(tmp_path / "none.db"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["problem"]["T"] for row in rows] == [256, 500]
    for row in rows:
        found = {one["name"]: one for one in row["contenders"]}
        assert row["checked"] == row["slices"] == 2
        assert {name for name in ("autotune", "flash", "math") if found[name]["became"] != "ok"} == set(), found
        assert not [one for one in found.values() if one["became"] == "wrong"]
        for one in found.values():
            if one["became"] == "ok":
                assert 0 < one["low_ms"] <= one["ms"] <= one["high_ms"]
                assert one["call_us"] > 0
                assert all(0 < error["relative"] < 4e-2 for error in one["errors"].values())
