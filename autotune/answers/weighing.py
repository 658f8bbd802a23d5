"""Which of what is known of other problems promises most for one, perhaps with another size than it has there."""

from collections.abc import Callable, Collection, Mapping

from autotune.core.candidate import Candidate
from autotune.core.problem import Problem
from autotune.estimate.fit import Expected, Known, by_promise
from autotune.estimate.varied import few_of_each, sizes_of, variations
from autotune.families.template import Template
from autotune.gpus.spec import DeviceSpec

_BASES = 1
"""Of how many candidates values are changed, where they were timed: each costs some milliseconds."""


def most_promising(
    known: Collection[Known], templates: Mapping[str, Template], problem: Problem, spec: DeviceSpec,
    right: Callable[[Candidate], bool],
) -> tuple[Expected, Known]:  # fmt: skip
    """The most promising candidate, and that of the known ones that it is, or from which it differs in one size.

    `right`: whether a candidate may be answered. Of several times of one candidate the nearest stands for it.
    """
    ranked = by_promise(known, templates, problem, spec)
    sizes = {expected.known: sizes_of(expected.known.candidate, templates) for expected in ranked}
    proven = [e for e in few_of_each(ranked, sizes, 1)[:_BASES] if e.known.ms is not None]
    varied = variations(proven, templates, problem, spec)
    made = {new: base for new, base in varied.items() if right(new.candidate)}
    better = by_promise(made, templates, problem, spec)
    if better and better[0].ms < ranked[0].ms:
        return better[0], _nearest(made[better[0].known].candidate, ranked).known
    best = _nearest(ranked[0].known.candidate, ranked)
    return best, best.known


def _nearest(candidate: Candidate, ranked: Collection[Expected]) -> Expected:
    same = (expected for expected in ranked if expected.known.candidate == candidate)
    return min(same, key=lambda expected: (not expected.alike, expected.distance, expected.known.listed))
