"""Configurations that nobody timed, a value away from one that is known: where its tiles or its waves do not fit a
problem, another size may, and `autotune.estimate.fit` says so.

A size is a whole number on which grids, blocks or shared memory depend. What other parameters do to the time is not
foretold at all.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from autotune.core.candidate import Candidate
from autotune.core.problem import Problem
from autotune.estimate.fit import Expected, Known
from autotune.families.frontmatter import LaunchSpec
from autotune.families.space import Space
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec

_SHAPING: dict[str, tuple[str, ...]] = {}


def variations(
    bases: Sequence[Expected], templates: Mapping[str, Template], problem: Problem, spec: DeviceSpec
) -> dict[Known, Known]:
    """All valid candidates that differ from one of the bases in one size, each with the base that it is like.

    What is a base itself is not among them; of several bases the first counts.
    """
    found: dict[Candidate, tuple[Known, Known]] = {}
    seen = {base.known.candidate for base in bases}
    for base in bases:
        template = templates[base.known.candidate.template]
        space = Space(template, problem, spec)
        for candidate in _one_away(base.known.candidate, template, space):
            if candidate not in seen:
                seen.add(candidate)
                like = replace(base.known, candidate=candidate, like=base.known.like or base.known.candidate)
                found[candidate] = like, base.known
    return dict(found.values())


def few_of_each(ranked: Iterable[Expected], kinds: Mapping[Known, Hashable], most: int) -> list[Expected]:
    """The first `most` of each kind, in the same order."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for expected in ranked:
        seen[kinds[expected.known]] += 1
        if seen[kinds[expected.known]] <= most:
            kept.append(expected)
    return kept


def sizes_of(candidate: Candidate, templates: Mapping[str, Template]) -> Hashable:
    """What a candidate has in common with others whose launches are as large."""
    config = candidate.config
    return candidate.template, tuple(config[size] for size in shaping(templates[candidate.template]))


def _one_away(candidate: Candidate, template: Template, space: Space) -> Iterator[Candidate]:
    config = candidate.config
    sizes = shaping(template)
    for parameter in template.parameters:
        if parameter.name in sizes and all(type(value) is int for value in parameter.values):
            for value in parameter.values:
                changed = {**config, parameter.name: value}
                if value != config[parameter.name] and space.why_not(changed) is None:
                    yield space.candidate(changed)


def shaping(template: Template) -> tuple[str, ...]:
    """The parameters on which grid, block or shared memory of some launch depends."""
    if template.hash not in _SHAPING:
        front = template.front
        steps = [step for step in front.steps if isinstance(step, LaunchSpec)]
        asked = {
            name
            for step in steps
            for expression in (*step.grid, *step.block, step.smem, step.when)
            if expression is not None
            for name in expression.names
        }
        for name, expression in reversed(front.derived):  # each is of those before it
            if name in asked:
                asked |= set(expression.names)
        _SHAPING[template.hash] = tuple(p.name for p in template.parameters if p.name in asked)
    return _SHAPING[template.hash]
