"""The shipped families have nothing to find: a sample here, `python -m benchmarks.check_all` for more."""

import pytest

from autotune.checker.awkward_tasks import awkward_tasks, problems_for
from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.awkward import awkward_problems
from autotune.ops.registry import BUILTIN
from autotune.trace.task import run_task

FAMILIES = tuple(template for op in BUILTIN for template in builtin_templates(op))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: f"{family.op}-{family.name}")
def test_nothing_is_found(family: Template) -> None:
    for task in awkward_tasks(family, gpu("h200"), count=1, seed=len(family.name)):
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


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: f"{family.op}-{family.name}")
def test_every_family_sees_every_awkward_shape(family: Template) -> None:
    """Whatever dtypes and head sizes it has; what it supports as it is stays as it is."""
    problems, spec = awkward_problems(family.op), gpu("h200")
    seen = problems_for(family, spec)
    assert {_shape(problem) for problem in seen} == {_shape(problem) for problem in problems}
    assert all(family.why_unsupported(problem, spec) is None for problem in seen)
    assert {problem for problem in problems if family.why_unsupported(problem, spec) is None} <= set(seen)
    assert len(set(seen)) == len(seen)


def _shape(problem: Problem) -> tuple[tuple[str, object], ...]:
    return tuple((name, value) for name, value in problem.fields.items() if name not in {"dtype", "HS", "arithmetic"})
