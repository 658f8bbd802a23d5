"""Kernels that take heads in groups, on problems with too few: what is executed, and that no verdict follows."""

from pathlib import Path

import pytest

from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.factory import CpuOpener
from autotune.families.reduced import computes, executable, reduced
from autotune.families.template import find_template
from autotune.gpus.known import gpu
from autotune.ops.attention import Forward
from autotune.ops.registry import get_op
from autotune.store import open_store
from autotune.tuning.choose import choose_subject
from autotune.tuning.events import silent
from autotune.tuning.pins import pinned
from autotune.tuning.search_options import Options
from autotune.tuning.session import search_one

SPEC = gpu("h200")


@pytest.mark.parametrize(("heads", "executed"), [(16, 1), (4, 1), (2, 2), (1, 1), (0, 0)])
def test_groups_that_are_not_full_are_left_out(heads: int, executed: int) -> None:
    family = find_template("backward", "flash_wgmma")
    problem = get_op("backward").problem(B=2, NH=2, T=256, HS=64, dtype="fp16")
    config = {**family.defaults, "HEADS_AT_ONCE": heads}
    assert executable(family, problem, config, SPEC) == {**config, "HEADS_AT_ONCE": executed}


def test_nothing_else_is_changed() -> None:
    """What is ruled out for another reason is left as it is: another kernel would be executed."""
    family = find_template("backward", "flash_wgmma")
    problem = get_op("backward").problem(B=2, NH=2, T=256, HS=128, dtype="fp16")
    config = {**family.defaults, "BLOCK_M": 128, "HEADS_AT_ONCE": 16}
    assert executable(family, problem, config, SPEC) == config


def test_groups_are_left_out_where_a_search_would_not_ask_either() -> None:
    """Blocks that stay have one tile each here, for which alone nobody would search."""
    family = find_template("forward", "flash_wgmma")
    problem = get_op("forward").problem(B=2, NH=2, T=256, HS=64, dtype="fp16")
    config = {**family.defaults, "PERSISTENT": True, "HEADS_AT_ONCE": 16}
    assert executable(family, problem, config, SPEC) == {**config, "HEADS_AT_ONCE": 0}
    assert computes(family, problem, config, SPEC)


class OfThree(Forward):
    """Attention whose emulated problems have three query heads a key head."""

    def emulated(self, problem: Problem) -> Problem:
        return problem.replace(B=1, NH=3, NH_kv=1)


def test_a_smaller_problem_is_one_that_the_configuration_computes() -> None:
    family = find_template("forward", "flash_wgmma")
    problem = get_op("forward").problem(B=2, NH=16, NH_kv=4, T=256, HS=64, dtype="fp16")
    plain = {**family.defaults, "PERSISTENT": False, "OUT_APART": False}
    packed = {**plain, "PACK_HEADS": True}
    heads = [reduced(OfThree(), family, problem, config, SPEC).integer("NH") for config in (plain, packed)]
    assert heads == [3, 4]
    assert not computes(family, OfThree().emulated(problem), packed, SPEC)
    assert not computes(family, problem.replace(dtype="fp32"), plain, SPEC)


def test_a_search_without_a_gpu_finds_them_right(tmp_path: Path) -> None:
    subject = pinned(choose_subject("backward", ["flash_wgmma"], None), {"HEADS_AT_ONCE": 4})
    problem = subject.problem({"B": 4, "NH": 12, "T": 256, "HS": 64, "dtype": "fp16", "causal": False})
    with open_store(tmp_path / "a.db") as store:
        result = search_one(subject, problem, CpuOpener(SPEC, 2), Options(trials=1), store, silent)
    assert result.outcomes == {Outcome.OK: 1}
    assert result.best is not None
    assert result.best.candidate.config["HEADS_AT_ONCE"] == 4
