"""Every shipped family with its synchronisation taken out: the checker must see that something is missing."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.problem import Problem
from autotune.emulator.building import build_emulator
from autotune.families.render import render
from autotune.families.source import KernelSource
from autotune.families.space import Space
from autotune.families.template import Template, builtin_templates
from autotune.gpus.known import gpu
from autotune.ops.awkward import awkward_problems
from autotune.ops.expected import storage_images
from autotune.ops.registry import BUILTIN, get_op
from autotune.trace.tracing import trace_plan

SPEC = gpu("h200")
WAIT = re.compile(r"\bwait_for_copies<[^>]*>\(\);")
BARRIER = re.compile(r"\b__syncthreads\(\);")
SYNCHRONISES = re.compile(r"\b__syncthreads\(\);|\bwait_for_copies<|\breduce_(block|tree)<")


def synchronised() -> Iterator[Template]:
    """Families in whose source a block waits for itself, or for its copies."""
    for op in BUILTIN:
        for family in builtin_templates(op):
            if SYNCHRONISES.search(family.path.read_text()):
                yield family


def _rendered(family: Template) -> tuple[Problem, KernelSource]:
    """A configuration that synchronises, the default first, on the awkward problem with the most work of the small."""
    problems = [p for p in awkward_problems(family.op) if family.why_unsupported(p, SPEC) is None]
    problem = max((p for p in problems if _size(p) <= 113 * 203), key=_size)
    # Of one head, of 64 columns: what is missing is missing in every block and at every width of a row, and a traced
    # run costs a hundred times a plain one.
    small = {"B": 1, "NH": 1, "NH_kv": 1, "HS": 64}
    problem = problem.replace(**{name: value for name, value in small.items() if name in problem.fields})
    assert family.why_unsupported(problem, SPEC) is None
    space, random = Space(family, problem, SPEC), np.random.default_rng(0)
    configs = (space.default(), *(space.sample(random) for _ in range(50)))
    sources = (render(family, problem, config, SPEC) for config in configs)
    return problem, next(source for source in sources if SYNCHRONISES.search(source.body))


def _size(problem: Problem) -> int:
    names = ("T", "T_kv") if "T_kv" in problem.fields else ("M", "N")
    return problem.integer(names[0]) * problem.integer(names[1]) if names[1] in problem.fields else problem.integer("T")


def _without(source: KernelSource, what: re.Pattern[str]) -> KernelSource:
    includes = tuple(replace(include, text=what.sub(";", include.text)) for include in source.includes)
    return replace(source, body=what.sub(";", source.body), includes=includes)


@pytest.mark.parametrize("family", list(synchronised()), ids=lambda family: f"{family.op}-{family.name}")
def test_what_is_missing_is_found(family: Template) -> None:
    problem, source = _rendered(family)
    copies = WAIT.search(source.body) is not None
    op, mutant = get_op(family.op), _without(source, WAIT if copies else BARRIER)
    assert mutant != source
    images = storage_images(op.tensors(problem), op.inputs(problem, 1))
    trace = trace_plan(build_emulator(mutant, BuildCache(), traced=True), source.plan, images, op.tensors(problem))
    expected = "asynchronous copy not waited for" if copies else "shared memory race"
    found = [finding for finding in trace.findings if finding.kind == expected]
    assert found, list(map(str, trace.findings))
    # A function of a header that is not inlined, as is the producer's loop at a low level, has no line of the kernel.
    assert any(finding.line > 0 for finding in found)
    assert all(finding.line > 0 or finding.place.inner for finding in found)
