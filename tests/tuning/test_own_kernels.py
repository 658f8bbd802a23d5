"""A kernel of one's own from search to call: whole numbers, a tensor changed in place, functions made on the fly."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.core.outcome import Outcome
from autotune.ops.op import Arrays
from autotune.tuning.result import SearchResult

FOLDER = Path(__file__).parents[2] / "examples" / "scatter"
PARAMS = {"THREADS": 32, "ROWS": 4, "REGISTERS": 32}
SHAPE: Any = {"rows": 64, "cols": 32, "size": 8}


def reference(problem: dict[str, Any], inputs: Arrays) -> Arrays:
    table, counts = inputs["table"], np.zeros(problem["size"], np.int64)
    np.add.at(table, inputs["index"], inputs["values"])
    np.add.at(counts, inputs["index"], 1)
    return {"table": table, "counts": counts}


def search(template: Path, db: Path) -> SearchResult:
    names: dict[str, Any] = {"__name__": "__main__", "np": np, "reference": reference}
    exec("inline = lambda problem, inputs: reference(problem, inputs)", names)
    return autotune.search(
        template=template, device="cpu", params=PARAMS, db=db, reference=names["inline"],
        inputs=lambda problem, seed: {"index": np.arange(problem["rows"]) % 3}, **SHAPE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own") / "db.sqlite"


@pytest.fixture(scope="module")
def found(database: Path) -> SearchResult:
    return search(FOLDER / "scatter.cu.j2", database)


def test_it_is_verified_on_the_inputs_given(found: SearchResult, database: Path) -> None:
    assert found.best is not None
    verification = found.best.measurement.verification
    assert verification is not None
    table, counts = verification.checks
    assert (counts.name, counts.max_abs_error, counts.bound) == ("counts", 0.0, 0.0)
    assert 0.0 < table.max_abs_error < table.bound
    again = search(FOLDER / "scatter.cu.j2", database)
    assert (again.resumed, again.trials) == (1, 1), "equal functions are one version"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "atomicAdd(&counts[to], 1)",
            "atomicAdd(&counts[to], 1 + (to == 2 && row > 60))",
            "counts: error 1 at .*bound 0",
        ),
        ("atomicAdd(&table", "table[to * cols + col] = 0.0f, atomicAdd(&table", "table: error"),
    ],
)
def test_wrong_kernels_are_rejected(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    text = (FOLDER / "scatter.cu.j2").read_text()
    assert right in text
    (tmp_path / "scatter.cu.j2").write_text(text.replace(right, wrong))
    result = search(tmp_path / "scatter.cu.j2", tmp_path / "db.sqlite")
    assert result.best is None
    assert dict(result.outcomes) == {Outcome.WRONG_RESULT: 1}
    assert re.search(message, result.messages[Outcome.WRONG_RESULT])


def test_a_call_changes_the_callers_array(found: SearchResult, database: Path) -> None:
    kernel = autotune.kernel(
        template=FOLDER / "scatter.cu.j2", device="cpu", db=database, dtype="fp16", **SHAPE,
    )  # fmt: skip
    assert (kernel.inputs, kernel.outputs) == (("index", "values", "table"), ("table", "counts"))
    index, values = np.arange(64, dtype=np.int32) % 8, np.ones((64, 32), np.float16)
    table = np.full((8, 32), 2.0, np.float32)
    results = kernel(index=index, values=values, table=table)
    assert results["table"] is table
    np.testing.assert_array_equal(table, np.full((8, 32), 10.0))
    np.testing.assert_array_equal(results["counts"], np.full(8, 8))


def test_an_export_takes_one_pointer(tmp_path: Path, database: Path) -> None:
    written = autotune.export(
        template=FOLDER / "scatter.cu.j2", output=tmp_path / "scatter.cu", device="h200", db=database, **SHAPE
    )
    text = Path(written.path).read_text()
    assert "    float* table,\n    int* counts,\n" in text
    assert "table   changed in place, float (8, 32)" in text
    assert "(before)" not in text
    assert "-lineinfo -maxrregcount=" in written.compile
