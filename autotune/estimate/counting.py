"""Counting what a candidate does, by tracing it on the emulator: short problems where the counts scale exactly.

Costs a traced build (1 to 2 s) and two short runs (together under a second) a candidate.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from autotune.core.errors import LaunchError
from autotune.core.plan import LaunchPlan
from autotune.core.problem import Problem
from autotune.estimate.counts import Counts, counts_of, extrapolate, grid_ratio, uneven
from autotune.families.reduced import computes, reduced
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.template import Template, load_template
from autotune.ops.attention import Attention
from autotune.ops.op import Op
from autotune.trace.task import Traced, TraceTask
from autotune.trace.tracing import SAMPLED_BLOCKS

Tracer = Callable[[TraceTask], Traced]
"""`TracingProcess.trace`, or `run_task` in a process that may be torn down."""

SHORT = 128
"""Length of the shorter of two traced problems, unless the tiles are longer."""

_LONGEST_SHORT = 1024


def count(tracer: Tracer, task: TraceTask, op: Op, whole: LaunchPlan) -> tuple[Counts, ...]:
    """Counts of each launch of `whole`, the plan for `task.problem`. Deterministic.

    Raises:
        LaunchError: a launch did not run to its end, or a run took too long.
        CompileError: the traced build is refused.
        BuildError: there is no compiler.
    """
    length = short_length(op, task)
    if length is None:
        return _of_executed(tracer, replace(task, problem=_executed(op, task)), whole)
    heads = task.problem.integer("B") * task.problem.integer("NH_kv")
    short, double = (_run(tracer, replace(task, problem=_one_head(task.problem, T))) for T in (length, 2 * length))
    found = []
    for i, launch in enumerate(whole.launches):
        one, two = (counts_of(traced.trace.kernels[i]) for traced in (short, double))
        counts = extrapolate(one, two, length, task.problem.integer("T"), heads)
        small, smaller = (traced.source.plan.launches[i] for traced in (double, short))
        found.append(uneven(counts, two, small, smaller, launch, heads, double.trace.kernels[i].first))
    return tuple(found)


def short_length(op: Op, task: TraceTask) -> int | None:
    """The shorter length to trace: the least at which a doubled length doubles the tiles of every launch.

    None where work is no polynomial of the length, the problem is short itself, or the configuration computes none that
    is shorter.
    """
    problem = task.problem
    if not isinstance(op, Attention) or problem["T"] != problem["T_kv"]:
        return None
    template = _template(task.template)
    length = SHORT
    while 4 * length <= problem.integer("T") and length <= _LONGEST_SHORT:
        problems = [_one_head(problem, T) for T in (length, 2 * length)]
        short, double = (_render(template, task, one) for one in problems)
        ratios = grid_ratio(double.plan.launches, short.plan.launches)
        computed = (computes(template, one, dict(task.config), task.spec) for one in problems)
        if all(ratio in (2.0, 4.0) for ratio in ratios) and all(computed):
            return length
        length *= 2
    return None


def short_source(op: Op, task: TraceTask) -> KernelSource:
    """The source whose traced build `count` needs, to build it ahead."""
    length = short_length(op, task)
    problem = _executed(op, task) if length is None else _one_head(task.problem, 2 * length)
    return _render(_template(task.template), task, problem)


@lru_cache(maxsize=16)
def _template(path: Path) -> Template:
    return load_template(path)


def _executed(op: Op, task: TraceTask) -> Problem:
    return reduced(op, _template(task.template), task.problem, dict(task.config), task.spec)


def _one_head(problem: Problem, T: int) -> Problem:
    """One key head with the query heads that share it."""
    group = problem.integer("NH") // problem.integer("NH_kv")
    return problem.replace(B=1, NH=group, NH_kv=1, T=T, T_kv=T)


def _render(template: Template, task: TraceTask, problem: Problem) -> KernelSource:
    return render(template, problem, dict(task.config), task.spec)


def _run(tracer: Tracer, task: TraceTask) -> Traced:
    traced = tracer(task)
    if not traced.trace.complete:
        raise LaunchError(f"the traced run failed: {traced.trace.failure}")
    return traced


def _of_executed(tracer: Tracer, task: TraceTask, whole: LaunchPlan) -> tuple[Counts, ...]:
    """From sampled blocks of the problem that the emulator executes, which has fewer batches and heads."""
    traced = _run(tracer, replace(task, blocks=SAMPLED_BLOCKS))
    ratios = grid_ratio(whole.launches, traced.source.plan.launches)
    return tuple(counts_of(trace).times(ratio) for trace, ratio in zip(traced.trace.kernels, ratios, strict=True))
