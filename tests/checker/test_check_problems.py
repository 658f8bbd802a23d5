"""The problems that are executed in place of the one asked for: a family computes them with the configuration."""

import pytest

from autotune.checker.target import find_target, find_targets
from autotune.core.problem import Problem
from autotune.core.values import Config
from autotune.estimate.counting import short_source
from autotune.families.op_ref import OpRef
from autotune.families.reduced import executable
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.registry import get_op
from autotune.trace.task import TraceTask
from tests.every_family import Fields, each_family_of, fitted, home

HEADS: list[Fields] = [
    {"B": 1, "NH": 4, "NH_kv": 1, "T": 200, "T_kv": 900},
    {"B": 2, "NH": 64, "NH_kv": 8, "T": 512},
    {"B": 1, "NH": 5, "NH_kv": 1, "T": 1, "T_kv": 4096},
    {"B": 3, "NH": 48, "T": 1024, "causal": False, "HS": 128},
    {"B": 1, "NH": 16, "NH_kv": 1, "T": 4096, "HS": 75, "layout": "bthd"},
]
ASKED: dict[str, list[Fields]] = {
    "forward": HEADS,
    "backward": HEADS,
    "matmul": [{"B": 2, "NH": 12, "M": 300, "N": 520, "K": 4096}, {"B": 1, "NH": 1, "M": 4096, "N": 4096, "K": 4096}],
}
ELSE: list[Fields] = [{}, {"B": 1, "NH": 5, "T": 4096}]


def why_not(family: Template, problem: Problem, config: Config, spec: DeviceSpec) -> str | None:
    unsupported = family.why_unsupported(problem, spec)
    executed = executable(family, problem, config, spec)
    return unsupported or Space(family, problem, spec).why_not(executed, called=True)


@each_family_of()
def test_every_problem_that_is_derived_is_computed_with_the_configuration(family: Template) -> None:
    """Fewer heads, fewer of a group, shorter ones for counting: with random configurations of each problem."""
    spec, op = home(family), get_op(family.op)
    for fields in ASKED.get(family.op, ELSE):
        asked = fitted(family, fields, spec)
        if asked is None or not Space(family, asked, spec).size:
            continue
        for target, candidate in find_targets(
            family.op, family.name, None, spec.name, None, 24, len(family.name), asked.fields
        ):
            assert why_not(family, target.executed, candidate.config, spec) is None, (target.executed, candidate)
            task = TraceTask(OpRef(family.op), family.path, asked, candidate.values, spec)
            counted = short_source(op, task).problem
            assert why_not(family, counted, candidate.config, spec) is None, (counted, candidate)


@pytest.mark.parametrize("heads", [(4, 1), (8, 1), (64, 2)])
def test_heads_that_share_a_key_head_stay_whole_groups_of_those_there_are(heads: tuple[int, int]) -> None:
    """Three of four query heads were executed, which `flash_wgmma` does not pack: the checker reported a deadlock."""
    NH, NH_kv = heads
    fields: Fields = {"B": 1, "NH": NH, "NH_kv": NH_kv, "T": 70, "T_kv": 300, "dtype": "fp16", "causal": False}
    plain = {"BLOCK_M": 64, "PING_PONG": False, "PERSISTENT": False, "OUT_APART": False, "HEADS_AT_ONCE": 0}
    changes = {**plain, "SPLIT": 1, "PACK_HEADS": True}
    target = find_target("forward", "flash_wgmma", changes, None, "h200", None, fields)
    assert (target.executed["NH"], target.executed["NH_kv"]) == (2 * NH_kv, NH_kv)


def test_smaller_problems_have_parts_of_a_group_or_all_of_it() -> None:
    """The usual one first, and the problem itself at last."""
    op = get_op("forward")
    for problem in (op.problem(B=3, NH=14, NH_kv=2, T=64), op.problem(B=2, NH=4, T=64)):
        smaller = list(op.smaller(problem))
        assert smaller[0] == op.emulated(problem)
        assert smaller[-1] == problem
        group = problem.integer("NH") // problem.integer("NH_kv")
        assert {one.integer("NH") // one.integer("NH_kv") for one in smaller} == {
            1,
            min(2, group),
            min(3, group),
            group,
        }
        assert all(
            one.integer("B") * one.integer("NH") <= problem.integer("B") * problem.integer("NH") for one in smaller
        )
