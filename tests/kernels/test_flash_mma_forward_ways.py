"""What the forward family on tensor cores may do in other ways: split keys, packed heads, shared rows, overlap."""

from typing import Any

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.families.space import Space
from tests.kernels.attention_cases import SPEC, Judge
from tests.kernels.forward_runs import Run, agree, place
from tests.kernels.test_flash_mma_forward import FAMILY, FORWARD, judge

__all__ = ["judge"]  # a fixture

SMALL: dict[str, Any] = {"BLOCK_M": 32, "WARPS": 1, "BLOCK_N": 32, "MIN_BLOCKS": 1}
ONE_TILE: dict[str, Any] = {**SMALL, "BLOCK_M": 16, "BLOCK_N": 16}


def valid(problem: Problem, changed: Config) -> dict[str, Any]:
    config = {**FAMILY.defaults, **changed}
    assert Space(FAMILY, problem, SPEC).why_not(config) is None
    return config


def right(judge: Judge, problem: Problem, config: Config) -> None:
    found = judge(problem, config)
    assert (found.outcome, found.message) == (Outcome.OK, ""), (problem, config)


@pytest.mark.parametrize(("split", "packed"), [(2, False), (4, True), (8, False)])
def test_splits(split: int, packed: bool, judge: Judge) -> None:
    """More splits than a block has tiles, rows that see no key of a split, or none at all; no tile divides T_kv."""
    problem = FORWARD.problem(B=2, NH=3, NH_kv=1, T=70, T_kv=250, HS=32, dtype="fp16", causal=True)
    config = valid(problem, {**SMALL, "SPLIT": split, "PACK_HEADS": packed})
    for T, T_kv in ((70, 250), (203, 113), (130, 20), (1, 177), (5, 1)):
        right(judge, problem.replace(T=T, T_kv=T_kv), config)


@pytest.mark.parametrize(("split", "packed"), [(64, True), (32, False), (16, True)])
def test_one_query_and_many_keys(split: int, packed: bool, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=5, NH_kv=1, T=1, T_kv=1100, HS=64, dtype="bf16", causal=True)
    right(judge, problem, valid(problem, {**ONE_TILE, "SPLIT": split, "PACK_HEADS": packed}))


@pytest.mark.parametrize("layout", ["bthd", "bhtd", "packed"])
@pytest.mark.parametrize("group", [2, 3])
def test_packed_heads(group: int, layout: str, judge: Judge) -> None:
    """Rows of a query lie in two tiles, in two warps; masks are those of the row's query, not of the row."""
    problem = FORWARD.problem(
        B=2, NH=2 * group, NH_kv=2, T=45, T_kv=45, HS=64, dtype="fp16", causal=True, layout=layout
    )
    config = valid(problem, {**SMALL, "BLOCK_M": 64, "WARPS": 2, "PACK_HEADS": True})
    right(judge, problem, config)
    if layout != "packed":
        right(judge, problem.replace(T=23, T_kv=77), config)
        right(judge, problem.replace(T=70, T_kv=31), config)


def test_packed_heads_at_odd_strides(cache: BuildCache) -> None:
    """Rows that start between vectors, an inner stride of 2: elements are copied one by one."""
    problem = FORWARD.problem(B=1, NH=6, NH_kv=2, T=11, T_kv=50, HS=64, dtype="fp16", causal=True)
    run = Run(FAMILY, problem, cache, valid(problem, {**SMALL, "PACK_HEADS": True}))
    inputs = FORWARD.inputs(problem, seed=2)
    gaps = place(np.zeros((1, 6, 11, 64), np.float16), (6 * 11 * 65, 11 * 65, 65, 1), offset=3)
    q = place(inputs["q"], (6 * 11 * 128, 11 * 128, 128, 2))
    k, v = (place(inputs[name], (2 * 50 * 67, 50 * 67, 67, 1)) for name in "kv")
    agree(run({"q": q, "k": k, "v": v, "out": gaps}), run.reference(inputs), tolerance=2e-3)


@pytest.mark.parametrize(
    ("overlap", "changed"),
    [
        (16, {"BLOCK_N": 64, "STAGES": 2}),
        (32, {"BLOCK_N": 64, "STAGES": 3}),
        (64, {"BLOCK_N": 128, "STAGES": 2, "Q_IN_REGISTERS": False}),
    ],
)
def test_overlap(overlap: int, changed: Config, judge: Judge) -> None:
    """Fewer tiles than stages, none at all, warps that see nothing of a part, a last tile without a masked key."""
    problem = FORWARD.problem(B=1, NH=1, T=203, T_kv=260, HS=32, dtype="fp16", causal=True)
    config = valid(problem, {"BLOCK_M": 64, "WARPS": 4, "MIN_BLOCKS": 1, **changed, "OVERLAP": overlap})
    for T, T_kv in ((203, 260), (203, 113), (300, 20), (64, 160)):
        right(judge, problem.replace(T=T, T_kv=T_kv), config)
    right(judge, problem.replace(T=30, T_kv=256, causal=False), config)


SHARED: dict[str, Any] = {"BLOCK_M": 64, "WARPS": 4, "WARPS_D": 2, "MIN_BLOCKS": 1, "Q_IN_REGISTERS": False}


@pytest.mark.parametrize(
    ("HS", "changed"),
    [
        (256, {"BLOCK_N": 64, "STAGES": 1}),
        (192, {"BLOCK_N": 32, "STAGES": 2, "REVERSE": True}),
        (192, {"BLOCK_N": 96, "STAGES": 1, "SWIZZLE": False}),
        (128, {"BLOCK_N": 32, "STAGES": 3, "BLOCK_M": 128, "POLYNOMIAL": 1}),
    ],
)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_warps_that_share_rows(HS: int, changed: Config, dtype: str, judge: Judge) -> None:
    """Maxima, sums and weights are exchanged; rows without a key, keys that one of the warps has, no tile at all."""
    problem = FORWARD.problem(B=1, NH=2, NH_kv=1, T=101, T_kv=150, HS=HS, dtype=dtype, causal=True)
    config = valid(problem, {**SHARED, **changed})
    right(judge, problem, config)
    right(judge, problem.replace(T=150, T_kv=20), config)
    right(judge, problem.replace(T=70, T_kv=33, causal=False), config)


def test_packed_heads_of_warps_that_share_rows(judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=6, NH_kv=2, T=23, T_kv=77, HS=128, dtype="fp16", causal=True)
    right(judge, problem, valid(problem, {**SHARED, "BLOCK_N": 32, "PACK_HEADS": True}))


@pytest.mark.parametrize("together", [0, 1, 8, 16])
@pytest.mark.parametrize("changed", [{}, {"PACK_HEADS": True}, {"SPLIT": 4}], ids=str)
def test_heads_in_groups(together: int, changed: Config, judge: Judge) -> None:
    """Groups of heads that lie in two batches, and fewer heads than a group has."""
    problem = FORWARD.problem(B=4, NH=12, NH_kv=4, T=20, T_kv=130, HS=32, dtype="fp16", causal=True)
    config = valid(problem, {**SMALL, "HEADS_AT_ONCE": together, **changed})
    right(judge, problem, config)
    right(judge, problem.replace(B=1, NH=6, NH_kv=2), config)


@pytest.mark.parametrize(("dtype", "polynomial"), [("fp16", 1), ("fp16", 2), ("bf16", 2)])
def test_exponentials_by_polynomial(dtype: str, polynomial: int, judge: Judge) -> None:
    problem = FORWARD.problem(B=1, NH=2, T=90, T_kv=150, HS=64, dtype=dtype, causal=True)
    config = valid(problem, {**SMALL, "POLYNOMIAL": polynomial})
    right(judge, problem, config)
    right(judge, problem.replace(T=150, T_kv=90), config)


def test_values_that_do_not_apply_are_not_in_the_space() -> None:
    def why_not(changed: Config, **fields: Any) -> str:
        problem = FORWARD.problem(**{"dtype": "fp16", **fields})
        return str(Space(FAMILY, problem, SPEC).why_not({**FAMILY.defaults, **changed}))

    assert "there are heads that share a key head" in why_not({"PACK_HEADS": True})
    assert "keys are split only as far" in why_not({"SPLIT": 2}, B=8)
    assert why_not({"SPLIT": 2}, B=1) == "None"
    assert "every split has a tile of keys" in why_not({"SPLIT": 8}, B=1, NH=2, T_kv=300)
    assert "two parts of a tile take turns" in why_not({"OVERLAP": 64, "Q_IN_REGISTERS": False})
    assert "two parts of a tile take turns" in why_not({"OVERLAP": 32, "STAGES": 1})
    assert "warps share rows where O is wide" in why_not({"WARPS_D": 2})
    assert "warps share rows where O is wide" in why_not({**SHARED, "BLOCK_N": 48}, HS=256)
    assert "groups of heads are full" in why_not({"HEADS_AT_ONCE": 8}, B=3, NH=12)
    assert why_not({"HEADS_AT_ONCE": 8}, B=3, NH=2) == "None"
