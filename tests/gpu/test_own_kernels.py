"""A kernel of one's own on a GPU: in place, whole numbers, fp8, compiler options; timed runs begin with one state."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune

pytestmark = pytest.mark.gpu

SCATTER = Path(__file__).parents[2] / "examples" / "scatter" / "scatter.cu.j2"
SHAPE: Any = {"rows": 512, "cols": 64, "size": 32}


@pytest.mark.parametrize("dtype", ["fp16", "fp8e4m3"])
def test_it_is_right_before_and_after_it_was_timed(dtype: str, tmp_path: Path) -> None:
    result = autotune.search(
        template=SCATTER, device="cuda", db=tmp_path / "a.db", params={"THREADS": 64, "ROWS": 4}, dtype=dtype, **SHAPE
    )
    assert result.best is not None, result.messages
    assert not result.estimated
    timing, verification = result.best.measurement.timing, result.best.measurement.verification
    assert timing is not None
    assert timing.repeats > 1
    assert verification is not None
    assert [(check.name, check.passed) for check in verification.checks] == [("table", True), ("counts", True)]


def test_a_call_changes_the_callers_array(tmp_path: Path) -> None:
    kernel = autotune.kernel(template=SCATTER, device="cuda", db=tmp_path / "a.db", **SHAPE)
    index, values = (np.arange(512) % 32).astype(np.int32), np.ones((512, 64), np.float16)
    table = np.full((32, 64), 2.0, np.float32)
    results = kernel(index=index, values=values, table=table)
    np.testing.assert_array_equal(table, np.full((32, 64), 18.0))
    np.testing.assert_array_equal(results["counts"], np.full(32, 16))
