"""The shipped families have nothing to find: a sample here, `python -m benchmarks.check_all` for more."""

import pytest

from autotune.checker.awkward_tasks import awkward_tasks, problems_for
from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.families.template import Template
from autotune.ops.awkward import awkward_problems
from autotune.ops.registry import BUILTIN, get_op
from autotune.trace.task import run_task
from tests.every_family import each_family_of, home

MOST_FLOPS = 1e8
"""Of a problem that is traced for a family that multiplies number by number: each is a call of the checker's."""


@each_family_of()
def test_nothing_is_found(family: Template) -> None:
    """On the first of a few random tasks; families without tensor cores, on which a long one takes twenty seconds, on
    the first that is not long (several tiles of queries and keys, heads and rows cut off all the same)."""
    tasks = list(awkward_tasks(family, home(family), count=8, seed=len(family.name)))
    quick = [t for t in tasks if family.front.tensor_cores or get_op(family.op).flops(t.problem) <= MOST_FLOPS]
    task = quick[0]
    trace = run_task(task, BuildCache()).trace
    assert trace.complete, (task, trace.failure)
    assert not trace.findings, (task, list(map(str, trace.findings)))
    assert all(kernel.lines for kernel in trace.kernels)


@pytest.mark.parametrize("op", BUILTIN)
def test_problems_are_awkward(op: str) -> None:
    problems = awkward_problems(op)
    assert len(problems) >= 16
    assert len({problem.dtype for problem in problems}) == 3
    lengths = [problem.integer("T" if "T" in problem.fields else "M") for problem in problems]
    assert 1 in lengths
    assert any(length % 2 for length in lengths if length > 1)


@each_family_of()
def test_every_family_sees_every_awkward_shape(family: Template) -> None:
    """Whatever dtypes and head sizes it has, unless it is not for all shapes; what it supports as it is stays so."""
    problems, spec = awkward_problems(family.op), home(family)
    seen = problems_for(family, spec)
    missing = {_shape(problem) for problem in problems} - {_shape(problem) for problem in seen}
    asked = {name for supported in family.front.supports for name in supported.expr.names}
    assert not missing or asked - {"dtype", "HS", "arithmetic", "device"}
    assert seen
    assert all(family.why_unsupported(problem, spec) is None for problem in seen)
    assert {problem for problem in problems if family.why_unsupported(problem, spec) is None} <= set(seen)
    assert len(set(seen)) == len(seen)


def _shape(problem: Problem) -> tuple[tuple[str, object], ...]:
    return tuple((name, value) for name, value in problem.fields.items() if name not in {"dtype", "HS", "arithmetic"})
