"""Answers for problems that nobody tuned, from what ships: the answer is what promises most, and says so."""

from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.answers import weighing
from autotune.core.candidate import make_candidate
from autotune.estimate.fit import Expected, by_promise
from autotune.families.template import find_template
from autotune.ops.registry import get_op
from autotune.store import open_store
from tests.store.store_records import H200, SOURCE, ok


def test_a_default_that_promises_most_is_the_one_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not another family's default with the time that this one promises."""

    def unlisted_first(*asked: Any) -> list[Expected]:
        return sorted(by_promise(*asked), key=lambda e: e.known.ms is not None or e.known.listed)

    monkeypatch.setattr(weighing, "by_promise", unlisted_first)
    monkeypatch.setattr(weighing, "variations", lambda *_: {})
    found = autotune.best("backward", B=2, NH=12, T=4096, T_kv=77, causal=False, device="h200", db=tmp_path / "none.db")
    assert found.answer == "default"
    assert found.config == find_template("backward", found.candidate.template).defaults
    assert found.expected_ms is not None


def test_of_several_times_of_one_candidate_the_nearest_is_named(tmp_path: Path) -> None:
    """Whichever of them promises most: the answer is the same configuration."""
    found = autotune.best("forward", B=4, NH=12, T=1020, device="h200", db=tmp_path / "none.db")
    assert found.found is not None
    assert (found.found["B"], found.found["NH"], found.found["T"]) == (4, 12, 1024)


LARGE: tuple[dict[str, Any], ...] = (
    {"B": 100000, "NH": 1, "T": 64},
    {"B": 70000, "NH": 2, "NH_kv": 1, "T": 16},
    {"B": 1, "NH": 70000, "T": 64},
    {"B": 2, "NH": 65536, "T": 1, "T_kv": 1},
    {"B": 1, "NH": 1, "T": 2**24, "T_kv": 64},
    {"B": 1, "NH": 1, "T": 64, "T_kv": 2**24},
    {"B": 1, "NH": 1, "T": 2**30, "T_kv": 2**30},
    {"B": 64, "NH": 64, "T": 8192},  # 2**31 elements and more in a tensor
)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("op", ["forward", "backward"])
@pytest.mark.parametrize("fields", LARGE, ids=str)
def test_what_is_answered_for_large_problems_can_be_launched(
    op: str, dtype: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    found = autotune.best(op, device="h200", db=tmp_path / "none.db", dtype=dtype, **fields)
    for launch in found.plan.launches:
        assert 1 <= launch.grid[0] < 2**31
        assert all(1 <= blocks <= 65535 for blocks in launch.grid[1:])
    assert found.candidate.template.startswith("flash")


@pytest.mark.parametrize(("NH", "expected"), [(9, 16), (8, 0)])
def test_a_near_winner_answers_with_its_order_of_heads_left_out(NH: int, expected: int, tmp_path: Path) -> None:
    """Groups of 16 heads need more than 16: with 16 in all the same configuration goes through all heads at once."""
    family = find_template("backward", "flash_mma")
    near = get_op("backward").problem(B=2, NH=16, T=8192, causal=False)
    candidate = make_candidate("flash_mma", family.hash, {**family.defaults, "HEADS_AT_ONCE": 16, "REVERSE": True})
    with open_store(tmp_path / "own.db") as store:
        store.record(H200, near, candidate, SOURCE, ok(0.5))
    found = autotune.best("backward", B=2, NH=NH, T=8192, causal=False, device="h200", db=tmp_path / "own.db")
    assert (found.answer, found.found) == ("nearest", near)
    assert (found.config["HEADS_AT_ONCE"], found.config["REVERSE"]) == (expected, True)
    said = f"tuned for {near}, there with HEADS_AT_ONCE=16, which cannot be here"
    assert (said in found.remarks) is (expected == 0)
    assert (found.measurement_id is None) is (expected == 0)
