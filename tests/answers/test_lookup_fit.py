"""Answers for problems that nobody tuned, from what ships: the answer is what promises most, and says so."""

from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers import lookup
from autotune.estimate.fit import Expected, by_promise
from autotune.families.template import find_template


def test_a_default_that_promises_most_is_the_one_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not another family's default with the time that this one promises."""

    def unlisted_first(*asked: Any) -> list[Expected]:
        return sorted(by_promise(*asked), key=lambda e: e.known.ms is not None or e.known.listed)

    monkeypatch.setattr(lookup, "by_promise", unlisted_first)
    found = autotune.best("backward", B=2, NH=10, T=4096, T_kv=77, causal=False, device="h200", db=tmp_path / "none.db")
    assert found.answer == "default"
    assert found.config == find_template("backward", found.candidate.template).defaults
    assert found.expected_ms is not None


def test_of_several_times_of_one_candidate_the_nearest_is_named(tmp_path: Path) -> None:
    """Whichever of them promises most: the answer is the same configuration."""
    found = autotune.best("forward", B=4, NH=12, T=1030, device="h200", db=tmp_path / "none.db")
    assert found.found is not None
    assert (found.found["B"], found.found["NH"], found.found["T"]) == (4, 12, 1024)
