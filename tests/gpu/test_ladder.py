"""A climb on a GPU: few candidates, in a hurry, with PyTorch's and cuBLAS's times beside it; products in every type."""

import json
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.cli.main import run

pytestmark = pytest.mark.gpu
SMALL = ["--B", "1", "--NH", "4", "--T", "200", "--dtype", "fp32"]


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_a_climb_in_a_hurry(op: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["ladder", "--op", op, *SMALL, "--trials", "2", "--timeout", "120", "--db", str(tmp_path / "a.db")]
    assert run([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kind"] == "measured"
    about_16_bits = {"forward": {"V5", "V9"}, "backward": {"F2"}}[op]
    assert {version["version"] for version in data["versions"] if version["ms"] is None} == about_16_bits
    pytest.importorskip("torch")
    assert {"efficient", "math"} <= data["peers"]["attention"].keys()
    for times in data["peers"]["products"].values():
        assert times.keys() == {"cuBLAS", "cuBLAS tf32"}
        assert all(0 < ms < 10 for ms in times.values())


@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp32", "tf32"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_products_are_right(kind: str, layout: str, tmp_path: Path) -> None:
    """The first candidates of both families at an awkward size, heads in place and B shared."""
    fields: dict[str, Any] = {"dtype": "fp32", "arithmetic": "tf32"} if kind == "tf32" else {"dtype": kind}
    found = autotune.search(
        "matmul", B=2, NH=6, M=200, N=328, K=136, layout=layout, group=3, interleaved="ab", trials=8,
        db=tmp_path / "a.db", **fields,
    )  # fmt: skip
    assert {outcome.value for outcome, count in found.outcomes.items() if count} <= {"ok", "pruned", "infeasible"}
    assert found.best is not None
