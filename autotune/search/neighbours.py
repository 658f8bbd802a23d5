"""What is already known to be fast for problems like this one: a search begins with it."""

import math
from collections.abc import Iterator, Sequence

from autotune.candidate import Candidate
from autotune.problem import Problem
from autotune.search.families import Families
from autotune.search.records import Records
from autotune.store.entries import place
from autotune.store.shipped import shipped_winners

MOST = 3
"""How many winners of other problems are tried first."""


def neighbours(records: Records, families: Families, exact: Sequence[str]) -> tuple[Candidate, ...]:
    """Winners of the nearest problems on this GPU that are valid here, nearest first; shipped ones included.

    Problems that differ in one of the fields `exact` (dtype, head size, mask) are not near.
    """
    here = place(records.problem, exact)
    near = sorted(
        ((math.dist(here, place(problem, exact)), candidate) for problem, candidate in _winners(records)
         if _alike(problem, records.problem, exact)),
        key=lambda pair: pair[0],
    )  # fmt: skip
    current = (_current(candidate, families) for _, candidate in near)
    return tuple(dict.fromkeys(candidate for candidate in current if candidate is not None))[:MOST]


def _current(candidate: Candidate, families: Families) -> Candidate | None:
    """The same configuration of the family as it is today; None where that is not valid."""
    family = next((family for family in families if family.name == candidate.template), None)
    if family is None or not family.space.contains(candidate.config):
        return None
    return family.candidate(candidate.config)


def _winners(records: Records) -> Iterator[tuple[Problem, Candidate]]:
    for winner in records.store.winners(op=records.problem.op, device=records.identity.name):
        yield winner.record.problem, winner.record.candidate
    for line in shipped_winners():
        if line.problem.op == records.problem.op and line.identity.spec.name == records.identity.spec.name:
            yield line.problem, line.candidate


def _alike(a: Problem, b: Problem, exact: Sequence[str]) -> bool:
    return all(a[name] == b[name] for name in exact)
