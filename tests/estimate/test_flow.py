"""How often code is executed, from what was counted."""

import numpy as np
import pytest

from autotune.core.errors import BuildError
from autotune.estimate.controlflow import blocks_of, chains_of, live_blocks, loops_of
from autotune.estimate.counts import Counts
from autotune.estimate.flow import flow_of
from autotune.estimate.nonnegative import nonnegative_least_squares
from tests.estimate.instructions import END, branch, do

WARPS = 8.0
LOOP = [do(), do("barrier"), do("tensor"), do("tensor"), branch(1), do("global store"), END]


def test_blocks_and_loops() -> None:
    blocks = blocks_of(LOOP)
    assert [(b.begin, b.end, b.after, b.ends) for b in blocks] == [
        (0, 1, (1,), False), (1, 5, (1, 2), False), (5, 7, (), True),
    ]  # fmt: skip
    (loop,) = loops_of(blocks, [0, 1, 2])
    assert (loop.head, loop.blocks) == (1, (1,))


def test_nested_loops_come_inner_first() -> None:
    code = [do(), do(), do(), branch(2), branch(1), END]
    blocks = blocks_of(code)
    inner, outer = loops_of(blocks, live_blocks(blocks, ()))
    assert (inner.blocks, outer.blocks) == ((2,), (1, 2, 3))


def test_blocks_that_are_executed_together_are_one_chain() -> None:
    code = [do(), branch(3), do(), do(), branch(5, conditional=False), END]  # 2: on one way only
    blocks = blocks_of(code)
    chains, edges = chains_of(blocks, live_blocks(blocks, ()))
    assert chains == [[0], [1], [2, 3]]
    assert sorted(edges) == [(0, 1), (0, 2), (1, 2), (2, -1)]


def test_calls_return_unless_they_lead_to_the_end() -> None:
    function = [do(), do("call", target=3), END, do(), do("return")]
    blocks = blocks_of(function)
    assert [b.after for b in blocks] == [(1,), (), ()]
    assert live_blocks(blocks, ()) == [0, 1]
    jump = [do("tensor"), do("call", target=3, conditional=True), branch(0, conditional=False), do(), END]
    assert [b.after for b in blocks_of(jump)] == [(2, 1), (0,), ()]


def test_rounds_of_a_loop_follow_from_its_products() -> None:
    flow = flow_of(LOOP, Counts("k", tensor=20 * WARPS, barriers=10 * WARPS, global_stores=WARPS), WARPS)
    assert flow.executions == pytest.approx((1.0, 10.0, 1.0), rel=1e-3)
    assert flow.misfit < 1e-3


def test_a_block_whose_work_was_never_counted_is_not_executed() -> None:
    code = [do(), branch(3), do("global load"), do("tensor"), END]
    flow = flow_of(code, Counts("k", tensor=WARPS), WARPS)
    assert flow.executions == pytest.approx((1.0, 0.0, 1.0), abs=1e-3)


def test_a_block_is_executed_as_often_as_its_work_was_counted() -> None:
    code = [do("tensor"), branch(4), do("exponential"), do("exponential"), END]
    flow = flow_of(code, Counts("k", tensor=WARPS, special=2 * 32 * 0.25 * WARPS), WARPS)
    assert flow.executions[1] == pytest.approx(0.25, abs=0.01)


def test_where_nothing_tells_ways_apart_they_are_equally_often_taken() -> None:
    code = [do("tensor"), branch(3), do(), END]
    flow = flow_of(code, Counts("k", tensor=WARPS), WARPS)
    assert flow.executions[1] == pytest.approx(0.5, abs=0.01)


def test_code_without_an_end_is_refused() -> None:
    with pytest.raises(BuildError, match="no way leads through the code of kernel k"):
        flow_of([do(), branch(0, conditional=False)], Counts("k"), WARPS)


def test_least_squares_without_negative_unknowns() -> None:
    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert nonnegative_least_squares(matrix, np.array([1.0, 2.0, 3.0])) == pytest.approx([1.0, 2.0])
    # Without the bound the second would be -1.
    assert nonnegative_least_squares(np.eye(2), np.array([3.0, -1.0])) == pytest.approx([3.0, 0.0])
    rng = np.random.default_rng(0)
    matrix, wanted = rng.normal(size=(30, 12)), rng.normal(size=30)
    found = nonnegative_least_squares(matrix, wanted)
    slope = matrix.T @ (matrix @ found - wanted)
    assert found.min() >= 0.0
    assert slope[found == 0].min() > 0.0  # the conditions of an optimum
    assert np.abs(slope[found > 0]).max() < 1e-9
