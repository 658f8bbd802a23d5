"""Shipped winners out of sight: what look-ups and quick tuning know of a problem that nobody tuned."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from autotune.answers import lookup
from autotune.core.problem import Problem
from autotune.estimate import fit
from autotune.families.space import Space
from autotune.families.starts import Start
from autotune.store import entries
from autotune.store.json_lines import Line
from autotune.store.shipped import shipped_winners
from autotune.tuning import neighbours
from benchmarks.model_problems import model_problems


@contextmanager
def left_out(problems: Collection[Problem]) -> Iterator[None]:
    """Within the block no winner of these problems ships, and no start was timed for one of them.

    Searches that run in this process see the same. Not for several threads that leave out different problems.
    """
    hidden = set(problems)
    keys = {problem.key for problem in hidden}
    seen = tuple(line for line in shipped_winners() if line.problem not in hidden)
    listed = Space._listed_starts

    def starts(space: Space) -> Iterator[Start]:
        return (start for start in listed(space) if start.ms is None or start.problem not in keys)

    with ExitStack() as stack:
        for module in (entries, neighbours):
            stack.enter_context(patch.object(module, "shipped_winners", lambda: seen))
        stack.enter_context(patch.object(Space, "_listed_starts", starts))
        stack.enter_context(patch.object(fit, "_START_RATES", _OtherRates(keys)))
        stack.enter_context(patch.object(lookup, "_DATABASES", {}))
        stack.enter_context(patch.object(lookup, "_ANSWERS", {}))
        entries._shipped.cache_clear()
        try:
            yield
        finally:
            entries._shipped.cache_clear()


_Rates = tuple[tuple[Problem, bool, float], ...]


class _OtherRates(dict[Any, _Rates]):
    """Rates of starts, without those timed for the problems left out."""

    def __init__(self, keys: Collection[str]) -> None:
        super().__init__()
        self._keys = keys

    def __setitem__(self, key: Any, rates: _Rates) -> None:
        super().__setitem__(key, tuple(rate for rate in rates if rate[0].key not in self._keys))


def siblings(line: Line, lines: Collection[Line]) -> set[Problem]:
    """A winner's problem and those that tell as much of it: of a model's problems all of that model; of others those
    that differ in mask, dtype or layout alone."""
    names = _models()
    model = names.get(line.problem)
    found = {other.problem for other in lines if _shape(other.problem) == _shape(line.problem)}
    if model is not None:
        found |= {problem for problem, name in names.items() if name == model}
    return found | {line.problem}


def _models() -> Mapping[Problem, str]:
    """Of each problem of a model the model's name, without what is asked of it."""
    return {problem.problem: problem.name.split(",")[0] for problem in model_problems()}


def _shape(problem: Problem) -> tuple[object, ...]:
    """Op, lengths, counts and head sizes."""
    return problem.op, *((name, value) for name, value in problem.values if name not in ("causal", "dtype", "layout"))
