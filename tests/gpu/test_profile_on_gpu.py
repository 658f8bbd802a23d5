"""Nsight Compute on a winner, on a GPU; skipped where ncu is not installed, or may not count."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers.ncu_table import read_profile
from autotune.answers.profiling import kernel_of, launch, task_of
from autotune.cli.main import run
from autotune.ops.expected import expectations
from autotune.ops.registry import get_op

pytestmark = pytest.mark.gpu(pycuda=False)

FIELDS: dict[str, Any] = {"B": 1, "NH": 2, "T": 256}


@pytest.mark.parametrize("op", ["forward", "backward"])
def test_what_ncu_looks_at_is_right(op: str) -> None:
    found = autotune.best(op, device="cuda", **FIELDS)
    kernel = kernel_of(task_of(found, 0))
    kernel.verify(seed=0)
    results = launch(kernel)
    expected = expectations(get_op(op), found.problem, 0)[0]
    assert results.keys() == {tensor.name for tensor in expected.outputs}


@pytest.mark.skipif(shutil.which("ncu") is None, reason="ncu is not on the PATH")
def test_ncu_counts_a_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "counters.csv"
    code = run(["profile", "--op", "forward", "--B", "1", "--NH", "2", "--T", "256", "-o", str(output), "--json"])
    said = capsys.readouterr()
    if "ERR_NVGPUCTRPERM" in said.err:
        pytest.skip("this user may not read the GPU's counters")
    assert code == 0, said.err
    found = autotune.best("forward", device="cuda", **FIELDS)
    assert [kernel["kernel"] for kernel in json.loads(said.out)["kernels"]] == [s.kernel for s in found.plan.launches]
    for kernel in read_profile(output).kernels:
        figures = kernel.figures()
        assert {"time", "SM throughput", "achieved occupancy", "registers"} <= figures.keys()
        assert all(metric.number is not None and metric.number >= 0.0 for metric in figures.values())
