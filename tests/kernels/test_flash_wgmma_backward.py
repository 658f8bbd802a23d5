"""What the backward family for Hopper does in its own way, on the emulator."""

import re
from functools import partial

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.core.values import Config, Value
from autotune.families.render import render
from autotune.families.space import Space
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from tests.kernels.attention_cases import SPEC, Judge, traced, verdict
from tests.kernels.backward_runs import BACKWARD, agree, inputs_of, run

FAMILY = find_template("backward", "flash_wgmma")
ROLES: dict[str, Value] = {"SPLIT": "gradients", "BLOCK_N": 64}
APART: dict[str, Value] = {"DQ_ACCUMULATE": "separate"}
TURNS: dict[str, Value] = {"DQ_ACCUMULATE": "turns", "NEXT_KERNEL": "at_start"}
OK = (Outcome.OK, "")


@pytest.fixture(scope="module")
def judge(cache: BuildCache) -> Judge:
    return partial(verdict, FAMILY, cache=cache)


def valid(problem: Problem, changed: Config) -> dict[str, Value]:
    config = {**FAMILY.defaults, **changed}
    assert Space(FAMILY, problem, SPEC).why_not(config, called=True) is None
    return config


@pytest.mark.parametrize(
    ("HS", "way"),
    [(8, {}), (24, APART), (40, {}), (80, APART), (128, {}), (128, APART), (192, {}), (200, APART), (256, {})],
    ids=str,
)
def test_every_head_size_is_right(HS: int, way: Config, judge: Judge) -> None:
    """Widths that are no whole slab of TMA's, and several slabs, of which one group may have more than the other."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=70, T_kv=150, HS=HS, dtype="fp16", causal=HS % 16 == 8)
    narrower: dict[str, Value] = {"DO_STAGES": 1} if HS > 192 and way == APART else {}
    found = judge(problem, valid(problem, {**way, **(ROLES if HS > 128 else {}), **narrower}))
    assert (found.outcome, found.message) == OK


@pytest.mark.parametrize(
    "changed",
    [{"BLOCK_M": 128}, {"BLOCK_N": 64, "DQ_ACCUMULATE": "bulk"}, {**APART, "BLOCK_N": 192}, {**APART, "BLOCK_M": 96}],
    ids=str,
)
def test_blocks_that_see_little(changed: Config, judge: Judge) -> None:
    """Rows without a key, groups without keys, tiles of queries that only some groups of a block see."""
    for T, T_kv in ((203, 113), (300, 20), (64, 260)):
        problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=T, T_kv=T_kv, HS=32, dtype="fp16", causal=True)
        found = judge(problem, valid(problem, changed))
        assert (found.outcome, found.message) == OK, (T, T_kv)


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_rings_of_any_length(stages: int, judge: Judge) -> None:
    """Fewer and more stages than what is exchanged has, and not as many of dO as of Q."""
    problem = BACKWARD.problem(B=1, NH=3, NH_kv=1, T=300, T_kv=130, HS=32, dtype="bf16", causal=False)
    config = valid(problem, {"Q_STAGES": stages, "DO_STAGES": 4 - stages, "STAGGER": True})
    found = judge(problem, config)
    assert (found.outcome, found.message) == OK


@pytest.mark.parametrize(
    ("HS", "changed"),
    [
        (32, {}),
        (32, {"ORDER": "early"}),
        (32, {"ORDER": "late", "DQ_ACCUMULATE": "bulk", "Q_STAGES": 1}),
        (64, {"BLOCK_M": 128}),
        (64, {"BLOCK_M": 128, "ORDER": "late"}),
        (72, ROLES),
        (32, {**APART, "NEXT_KERNEL": "at_start"}),
        (64, {**TURNS, "BLOCK_M": 128}),
        (64, {"QUERY_SPLIT": 4, "NEXT_KERNEL": "at_start"}),
        (72, {**ROLES, "QUERY_SPLIT": 2}),
    ],
    ids=str,
)
def test_no_mistakes_of_the_pipeline(HS: int, changed: Config, cache: BuildCache) -> None:
    """Every access is watched: what TMA and wgmma read and write, fences, phases, bytes that are waited for, races."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=140, T_kv=150, HS=HS, dtype="fp16", layout="bhtd")
    trace = traced(FAMILY, problem, valid(problem, changed), cache)
    assert [str(found) for found in trace.findings] == []


@pytest.mark.parametrize(
    ("HS", "changed", "after"),
    [
        (64, {"BLOCK_M": 128}, 6),
        (64, {"BLOCK_M": 128, "ORDER": "late"}, 0),
        (96, {"ORDER": "early"}, 0),
        (128, {}, 3),
        (128, {"ORDER": "late"}, 0),
        (128, {"ORDER": "early"}, None),
        (64, {**TURNS, "BLOCK_M": 128}, None),
    ],
    ids=str,
)
def test_weights_kept_until_their_gradients(HS: int, changed: Config, after: int | None, judge: Judge) -> None:
    """P in fp32 until dS, dQ of the step before at once or `after` so many 16 queries of it; None: P is rounded."""
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=270, T_kv=290, HS=HS, dtype="bf16", causal=HS != 96)
    config = valid(problem, changed)
    body = render(FAMILY, problem, config, SPEC).body
    assert re.findall(r"KEPT = (\w+);", body) == ["false" if after is None else "true"]
    assert re.findall(r"DQ_AFTER = (\d+);", body) == [str(after or 0)]
    found = judge(problem, config)
    assert (found.outcome, found.message) == OK


def test_heads_that_take_turns(cache: BuildCache) -> None:
    """6 key heads, all at once, and two at a time; one at a time is the default."""
    problem = BACKWARD.problem(B=3, NH=4, NH_kv=2, T=37, T_kv=150, HS=32, dtype="fp16", causal=True)
    inputs = inputs_of(problem, 6)
    for heads, way in ((0, "separate"), (2, "separate"), (2, "atomic")):
        config = valid(problem, {"HEADS_AT_ONCE": heads, "DQ_ACCUMULATE": way})
        agree(run(FAMILY, problem, config, inputs, {}, cache), problem, inputs, 3e-3)


@pytest.mark.parametrize(
    ("HS", "changed"),
    [(64, {"BLOCK_M": 128, "STAGGER": True}), (24, {"ORDER": "late", "BLOCK_N": 64})],
    ids=str,
)
def test_blocks_that_take_turns_at_dq(HS: int, changed: Config, judge: Judge) -> None:
    """Tiles of queries that one block of keys has a share of, and several; heads that share keys."""
    causal = "STAGGER" not in changed
    problem = BACKWARD.problem(B=1, NH=2, NH_kv=1, T=203, T_kv=290, HS=HS, dtype="bf16", causal=causal)
    found = judge(problem, valid(problem, {**TURNS, **changed}))
    assert (found.outcome, found.message) == OK


@pytest.mark.parametrize(
    ("HS", "HS_v", "changed"),
    [
        (64, 64, {"QUERY_SPLIT": 4, "NEXT_KERNEL": "at_start"}),
        (40, 24, {"QUERY_SPLIT": 8, "ORDER": "late", "NEXT_KERNEL": "at_end"}),
        (128, 128, {"QUERY_SPLIT": 2, "ORDER": "early"}),
        (80, 80, {"QUERY_SPLIT": 16, "DQ_ACCUMULATE": "bulk", "BLOCK_N": 64}),
        (32, 32, {**APART, "QUERY_SPLIT": 4, "BLOCK_N": 192}),
        (192, 128, {**ROLES, "QUERY_SPLIT": 2}),
        (256, 256, {**ROLES, **APART, "DO_STAGES": 1, "QUERY_SPLIT": 4}),
    ],
    ids=str,
)
def test_blocks_that_share_queries(HS: int, HS_v: int, changed: Config, judge: Judge) -> None:
    """Fewer and more shares than a head has tiles, and blocks of keys of which some shares have nothing to do."""
    for T, T_kv, causal in ((203, 77, False), (150, 290, True), (290, 150, True)):
        problem = BACKWARD.problem(
            B=1, NH=6, NH_kv=2, T=T, T_kv=T_kv, HS=HS, HS_v=HS_v, dtype="fp16" if causal else "bf16", causal=causal
        )  # fmt: skip
        found = judge(problem, valid(problem, changed))
        assert (found.outcome, found.message) == OK, (T, T_kv)


def test_shares_are_for_idle_multiprocessors() -> None:
    problem = BACKWARD.problem(B=8, NH=16, NH_kv=16, T=512, HS=64, dtype="fp16")
    why = Space(FAMILY, problem, SPEC).why_not({**FAMILY.defaults, "QUERY_SPLIT": 2})
    assert why is not None
    assert "shares are for blocks that leave multiprocessors idle" in why


def test_turns_want_keys_for_every_query() -> None:
    problem = BACKWARD.problem(T=300, T_kv=200, HS=64, dtype="fp16", causal=True)
    why = Space(FAMILY, problem, SPEC).why_not({**FAMILY.defaults, **TURNS})
    assert "some block of keys has a share of each tile" in str(why)


def test_marks_of_two_groups_are_found(cache: BuildCache) -> None:
    """Groups have halves of dQ's columns: an infinity of K in the second group's half marks that one alone."""
    problem = BACKWARD.problem(B=1, NH=1, NH_kv=1, T=80, T_kv=80, HS=64, dtype="bf16", causal=True)
    inputs = inputs_of(problem, 3)
    expected = BACKWARD.reference(problem, inputs)
    inputs["k"][0, 0, 70, 40] = np.inf  # which queries from 70 on see
    got = run(FAMILY, problem, valid(problem, {**TURNS, "BLOCK_M": 64}), inputs, {}, cache)["dq"].astype(np.float64)
    np.testing.assert_allclose(
        got[0, 0, :70], expected["dq"][0, 0, :70], rtol=0, atol=2e-2 * np.abs(got[0, 0, :70]).max()
    )


def test_what_is_marked_is_computed_again(cache: BuildCache) -> None:
    """An infinity in one row of dO, which some keys do not see; of two wide gradients, one group's each."""
    problem = BACKWARD.problem(B=1, NH=1, NH_kv=1, T=80, T_kv=80, HS=160, dtype="bf16", causal=True)
    inputs = inputs_of(problem, 3)
    expected = BACKWARD.reference(problem, inputs)
    inputs["dout"][0, 0, 40, 7] = np.inf
    got = run(FAMILY, problem, valid(problem, ROLES), inputs, {}, cache)
    assert np.isinf(got["dv"][0, 0, :41, 7].astype(float)).all()
    untouched = {"dq": np.delete(np.arange(80), 40), "dk": np.arange(41, 80), "dv": np.arange(41, 80)}
    for name, rows in untouched.items():
        found, right = got[name].astype(np.float64)[0, 0, rows], expected[name][0, 0, rows]
        np.testing.assert_allclose(found, right, rtol=0, atol=2e-2 * np.abs(right).max(), err_msg=name)


def test_supports() -> None:
    for HS in (8, 64, 80, 256):
        for dtype in ("fp16", "bf16"):
            problem = BACKWARD.problem(HS=HS, dtype=dtype)
            assert FAMILY.why_unsupported(problem, SPEC) is None
            assert Space(FAMILY, problem, SPEC).size >= 30
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp32"), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(HS=264, dtype="fp16"), SPEC) is not None
    assert FAMILY.why_unsupported(BACKWARD.problem(dtype="fp16"), gpu("a100")) is not None
