"""Awkward problems and random configurations of a family, to be traced."""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle, islice

import numpy as np

from autotune.core.dtypes import OPERAND_DTYPES
from autotune.core.errors import ProblemError
from autotune.core.problem import Problem
from autotune.families.op_ref import OpRef
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec
from autotune.ops.awkward import SIZES, Fields, awkward_problems
from autotune.ops.registry import get_op
from autotune.trace.task import TraceTask


def problems_for(template: Template, spec: DeviceSpec) -> tuple[Problem, ...]:
    """The awkward problems of a family's op; of one that it does not support, dtype and head size are changed."""
    found: list[Problem] = []
    for i, problem in enumerate(awkward_problems(template.op)):
        supported = (other for other in _alike(problem, i) if template.why_unsupported(other, spec) is None)
        found += islice(supported, 1)
    return tuple(dict.fromkeys(found))


def _alike(problem: Problem, i: int) -> Iterator[Problem]:
    """The problem itself, then with another dtype, another head size, or both: beginning with the i-th size."""
    op, fields = get_op(problem.op), problem.fields
    sizes = SIZES[i % len(SIZES) :] + SIZES[: i % len(SIZES)]
    if "HS_v" in fields:  # for families that know one size alone
        sizes += (problem.integer("HS_v"),)
    dtypes = tuple(dict.fromkeys((problem.dtype, *OPERAND_DTYPES)))
    changes: list[Fields] = [{"dtype": dtype} for dtype in dtypes]
    if "HS" in fields:
        changes += [{"dtype": dtype, "HS": size} for dtype in dtypes for size in sizes]
    for change in changes:
        with suppress(ProblemError):
            yield op.problem(**{**fields, **change})


def awkward_tasks(template: Template, spec: DeviceSpec, count: int, seed: int) -> Iterator[TraceTask]:
    """`count` random configurations of a shipped family, each for the next of `problems_for` that has any."""
    random = np.random.default_rng(seed)
    problems = problems_for(template, spec)
    space_of = cache(lambda place: Space(template, problems[place], spec))
    places = islice(cycle(random.permutation(len(problems)).tolist()), (count + 1) * len(problems))
    nonempty = (space_of(place) for place in places if space_of(place).size)
    for space in islice(nonempty, count):
        config = tuple(space.sample(random).items())
        yield TraceTask(OpRef(template.op), template.path, space.problem, config, spec)
