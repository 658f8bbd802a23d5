"""`autotune.kernel(..., tune=)` and AUTOTUNE_ON_MISS: what is done for a problem that nobody has tuned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.answers.tuned import way_of
from autotune.core.errors import UsageError
from autotune.ops.registry import get_op
from autotune.store import open_store

PROBLEM: dict[str, Any] = {"B": 1, "NH": 1, "T": 5, "T_kv": 7, "HS": 32, "dtype": "fp32", "causal": False}


def test_a_quick_search_comes_first_once(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    kernel = autotune.kernel("forward", device="cpu", db=db, template="flash_simt", tune="quick", **PROBLEM)
    assert (kernel.best.answer, kernel.best.kind) == ("exact", "estimated")
    with open_store(db) as store:
        records = list(store.measurements())
    assert 1 <= len(records) <= 12
    op = get_op("forward")
    inputs = op.inputs(kernel.best.problem, 1)
    np.testing.assert_allclose(kernel(**inputs)["out"], op.reference(kernel.best.problem, inputs)["out"], atol=2e-5)
    again = autotune.kernel("forward", device="cpu", db=db, template="flash_simt", tune="quick", **PROBLEM)
    assert again.best == kernel.best
    with open_store(db) as store:
        assert len(list(store.measurements())) == len(records)


def test_nothing_is_searched_by_default_and_an_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "a.db"
    assert autotune.kernel("forward", device="cpu", db=db, **PROBLEM).best.answer != "exact"
    assert not db.exists()
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "error")
    with pytest.raises(UsageError, match=r"nothing is known of forward B=1 .* on NVIDIA .*tune='quick'"):
        autotune.kernel("forward", device="cpu", db=db, **PROBLEM)
    assert autotune.kernel("forward", device="cpu", db=db, tune="nearest", **PROBLEM).best.answer != "exact"


def test_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    assert way_of(None) == "nearest"
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "quick")
    assert (way_of(None), way_of("search")) == ("quick", "search")
    with pytest.raises(UsageError, match="tune='now' is none of nearest, quick, search, error"):
        way_of("now")
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "soon")
    with pytest.raises(UsageError, match="AUTOTUNE_ON_MISS='soon' is none of"):
        way_of(None)
