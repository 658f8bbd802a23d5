"""Warps on a scheduler, by hand."""

import pytest

from autotune.estimate.sass import Instruction
from autotune.estimate.warps import BARRIER_CLOCKS, Costs, clocks_alone, clocks_of_round, steps_of
from tests.estimate.instructions import do

COSTS = Costs({"fma": 1.0, "tensor": 8.0, "special": 8.0, "load": 4.0, "copy": 4.0}, {"load": 100.0}, 4.0, 300.0)


def alone(*code: Instruction) -> float:
    return clocks_alone(steps_of(code, COSTS))


def together(*code: Instruction, blocks: int, warps: int = 1) -> float:
    return clocks_of_round(steps_of(code, COSTS), blocks, warps)


def test_a_warp_alone_takes_the_clocks_the_compiler_wants() -> None:
    assert alone(do(stall=4), do(stall=2), do(stall=15)) == 21.0


def test_a_scoreboard_is_waited_for() -> None:
    load, use = do("global load", sets=0), do(waits=(0,))
    assert alone(load, use) == 4.0 + 100.0 + 1.0
    assert alone(load, do(stall=50), use) == 4.0 + 100.0 + 1.0
    assert alone(load, do(waits=(1,))) == 2.0


def test_a_pipe_takes_one_instruction_after_the_other() -> None:
    product = do("tensor")
    assert alone(product, product, product) == 8.0 + 8.0 + 1.0
    assert alone(do("tensor", amount=0.5), product) == 4.0 + 1.0
    assert alone(do("shared load", words=4), do("shared load")) == 16.0 + 1.0


def test_warps_fill_one_another_s_gaps_until_a_pipe_is_full() -> None:
    code = (do("fp32", stall=8), do("fp32", stall=8))
    assert together(*code, blocks=1) == 16.0
    assert together(*code, blocks=8) == pytest.approx(16.0)
    assert together(*code, blocks=16) == pytest.approx(32.0, rel=0.05)  # 32 issues
    assert together(do("tensor"), do(stall=8), blocks=4) == pytest.approx(32.0, rel=0.05)


def test_a_barrier_waits_for_the_block() -> None:
    code = (do("tensor"), do("barrier"), do())
    assert together(*code, blocks=1, warps=1) == pytest.approx(3.0 + BARRIER_CLOCKS, abs=8.0)
    assert together(*code, blocks=1, warps=4) == pytest.approx(3 * 8.0 + 3.0 + BARRIER_CLOCKS, abs=8.0)


def test_copies_are_waited_for_where_the_code_says() -> None:
    copy, commit = do("async copy"), do("commit copies")
    everything, all_but_one = do("wait for copies"), do("wait for copies", groups=1)
    assert alone(copy, commit, everything, do()) == 4.0 + 300.0 + 1.0 + 1.0
    assert alone(copy, commit, all_but_one, do()) == 4.0
    prefetched = together(copy, commit, all_but_one, do(stall=15), *[do(stall=15)] * 20, blocks=1)
    assert prefetched == pytest.approx(3.0 + 15 * 21)  # there since the round before
