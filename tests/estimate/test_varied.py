"""Sizes varied: which candidates come of a base, and what they promise."""

from typing import Any

import pytest

from autotune.core.problem import Problem
from autotune.core.values import Value
from autotune.estimate.fit import Expected, Known, by_promise
from autotune.estimate.varied import few_of_each, shaping, sizes_of, variations
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op

SPEC = gpu("h200")
FORWARD = get_op("forward")
FAMILY = find_template("forward", "flash_wgmma")
TEMPLATES = {FAMILY.name: FAMILY}
TUNED: dict[str, Any] = {
    "BLOCK_M": 256, "BLOCK_N": 64, "STAGES": 4, "PING_PONG": True, "OUT_APART": True, "PERSISTENT": True,
    "MIN_BLOCKS": 1, "PACK_HEADS": False, "HEADS_AT_ONCE": 1, "SPLIT": 1, "SPARED_REGISTERS": 0,
}  # fmt: skip
LONG = FORWARD.problem(B=8, NH=32, T=2048, HS=64, causal=False)


def base(problem: Problem, found_for: Problem = LONG, ms: float | None = 0.51) -> Expected:
    candidate = Space(FAMILY, problem, SPEC).candidate(TUNED)
    [expected] = by_promise([Known(candidate, found_for, ms)], TEMPLATES, problem, SPEC)
    return expected


def best_of(problem: Problem) -> tuple[Expected, Expected]:
    """A base and the best of its variations."""
    one = base(problem)
    return one, by_promise(variations([one], TEMPLATES, problem, SPEC), TEMPLATES, problem, SPEC)[0]


def changes(expected: Expected) -> dict[str, Value]:
    return {name: value for name, value in expected.known.candidate.config.items() if value != TUNED[name]}


def test_variations_are_valid_and_differ_in_one_size() -> None:
    problem = FORWARD.problem(B=24, NH=16, T=384, HS=64, causal=False)
    one = base(problem)
    made = variations([one], TEMPLATES, problem, SPEC)
    space = Space(FAMILY, problem, SPEC)
    assert len(made) >= 5
    for new, of in made.items():
        different = {name for name, value in new.candidate.values if TUNED[name] != value}
        assert len(different) == 1
        assert different <= {"BLOCK_M", "BLOCK_N", "STAGES", "MIN_BLOCKS"}
        assert space.why_not(new.candidate.config) is None
        assert (of, new.like, new.ms) == (one.known, one.known.candidate, 0.51)


@pytest.mark.parametrize(
    ("op", "shapes", "not_shapes"),
    [
        ("forward", {"BLOCK_M", "BLOCK_N", "STAGES", "MIN_BLOCKS", "PACK_HEADS"}, {"HEADS_AT_ONCE", "PING_PONG"}),
        ("backward", {"BLOCK_M", "BLOCK_N", "Q_STAGES", "DO_STAGES"}, {"HEADS_AT_ONCE", "ORDER", "STAGGER"}),
    ],
)
def test_what_shapes_launches_are_sizes_of_tiles_and_not_orders(
    op: str, shapes: set[str], not_shapes: set[str]
) -> None:
    found = set(shaping(find_template(op, "flash_wgmma")))
    assert shapes <= found
    assert not found & not_shapes


@pytest.mark.parametrize("B", [24, 12])
def test_rows_that_do_not_fit_a_length_become_fewer(B: int) -> None:
    """384 queries are two tiles of 192 rows, and of 256 one and a half: 0.87 of the time on an H200 (B=24)."""
    one, best = best_of(FORWARD.problem(B=B, NH=16, T=384, HS=64, causal=False))
    assert changes(best) == {"BLOCK_M": 192}
    assert best.ms < one.ms
    assert best.likely_ms == pytest.approx(0.87 * one.likely_ms, rel=0.04)


def test_few_keys_get_narrow_tiles() -> None:
    """77 keys are 96 in tiles of 48, and 128 in tiles of 64."""
    one, best = best_of(FORWARD.problem(B=2, NH=10, T=4096, T_kv=77, HS=64, causal=False))
    assert list(changes(best)) == ["BLOCK_N"]
    assert -(-77 // int(best.known.candidate.config["BLOCK_N"])) * int(best.known.candidate.config["BLOCK_N"]) <= 96
    assert best.ms < one.ms


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_nothing_beats_a_winner_where_its_tiles_fit(factor: int) -> None:
    """It won against them where it was tuned, and whole tiles and waves stay whole."""
    one, best = best_of(LONG.replace(B=8 * factor))
    assert best.ms > one.ms


def test_some_of_each_kind_are_kept_in_order() -> None:
    problem = LONG.replace(T=2000, T_kv=2000)
    made = by_promise(variations([base(problem)], TEMPLATES, problem, SPEC), TEMPLATES, problem, SPEC)
    rows = {e.known: e.known.candidate.config["BLOCK_M"] for e in made}
    kept = few_of_each(made, rows, 1)
    assert [e for e in made if e in kept] == kept
    assert sorted(rows[e.known] for e in kept) == sorted(set(rows.values()))
    same = Space(FAMILY, problem, SPEC).candidate({**TUNED, "HEADS_AT_ONCE": 4})
    assert sizes_of(same, TEMPLATES) == sizes_of(base(problem).known.candidate, TEMPLATES)
