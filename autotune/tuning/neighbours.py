"""What is already known to be fast for problems like this one: a search begins with it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.core.candidate import Candidate
from autotune.core.dtypes import numpy_dtype
from autotune.core.model_version import model_of
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.estimate.fit import Known
from autotune.ops.registry import get_op
from autotune.store.entries import place
from autotune.store.shipped import shipped_winners
from autotune.store.transfer import Identities
from autotune.tuning.history import Records
from autotune.tuning.joint_space import Families

MOST = 3
"""How many winners of other problems are tried first."""

RUNNERS_UP = 4
"""How many others of the nearest problem are tried after them."""

CLOSE = 1.1
"""How much slower than its problem's fastest a runner-up may be."""


@dataclass(frozen=True)
class _Won(Known):
    """A candidate that was timed."""

    problem: Problem


def neighbours(records: Records, families: Families, exact: Sequence[str]) -> tuple[Candidate, ...]:
    """What was fast for the nearest problems and is valid here; shipped winners included.

    Winners on this GPU of problems that agree in the fields `exact` (dtype, head size, mask, layout) come first,
    nearest first; then the runners-up of the nearest one that was searched here; then, where winners are few, those of
    such problems on other GPUs of the same architecture, and those on this one of problems that differ in the mask, the
    layout or the element type. Of another architecture none: what is fast there misleads more than it helps.
    """
    alike, akin, away = _by_kind(records, families, exact)
    winners = _valid(alike, families)[:MOST]
    runners = [c for c in _valid(_runners_up(alike, records), families) if c not in winners][:RUNNERS_UP]
    others = [c for c in _valid([*away, *akin], families) if c not in winners]
    return tuple(dict.fromkeys([*winners, *runners, *others[: MOST - len(winners)]]))


def known_nearby(records: Records, families: Families, exact: Sequence[str]) -> dict[Candidate, Known]:
    """All that `neighbours` chooses from, nearest first, with the times that it took where it was fast; further what
    won for heads whose tiles are as wide (`Op.akin`), and what is valid here with one parameter at its default."""
    alike, akin, away = _by_kind(records, families, exact)
    asked = get_op(records.problem.op).akin(records.problem)
    here = place(records.problem, exact)
    wide = [known for known in _winners(records, families) if any(_akin(known.problem, one, exact) for one in asked)]
    wide.sort(key=lambda known: math.dist(here, place(known.problem, exact)))
    found: dict[Candidate, Known] = {}
    for known in (*alike, *_runners_up(alike, records), *akin, *wide, *away):
        candidate = _current(known.candidate, families)
        if candidate is not None:
            found.setdefault(candidate, replace(known, candidate=candidate))
            continue
        candidate = _mended(known.candidate, families)
        if candidate is not None:
            tuned = replace(known.candidate, template_hash=candidate.template_hash)
            found.setdefault(candidate, replace(known, candidate=candidate, like=tuned))
    return found


def _by_kind(records: Records, families: Families, exact: Sequence[str]) -> tuple[list[_Won], list[_Won], list[_Won]]:
    """Winners on this GPU of problems that agree in the fields `exact`; of others of the same sizes; those of the first
    kind on other GPUs. Nearest first."""
    here = place(records.problem, exact)
    won = sorted(_winners(records, families), key=lambda known: math.dist(here, place(known.problem, exact)))
    away = sorted(_away(records, families), key=lambda known: math.dist(here, place(known.problem, exact)))
    return (
        [known for known in won if _alike(known.problem, records.problem, exact)],
        [known for known in won if _akin(known.problem, records.problem, exact)],
        [known for known in away if _alike(known.problem, records.problem, exact)],
    )


def _valid(found: Iterable[_Won], families: Families) -> list[Candidate]:
    current = (_current(known.candidate, families) for known in found)
    return list(dict.fromkeys(candidate for candidate in current if candidate is not None))


def _runners_up(alike: list[_Won], records: Records) -> list[_Won]:
    """The fastest trials of the nearest problem that has any here, fastest first; of estimates the newest model's."""
    for problem in dict.fromkeys(known.problem for known in alike if known.problem != records.problem):
        trials = records.store.measurements(problem, records.identity.name, outcome=Outcome.OK, stage="trial")
        timed = sorted((-model_of(t.driver), t.measurement.ms or math.inf, t.id, t.candidate) for t in trials)
        close = [(c, ms) for model, ms, _, c in timed if model == timed[0][0] and ms <= CLOSE * timed[0][1]]
        if close:
            return [_Won(candidate, problem, ms) for candidate, ms in close]
    return []


def _current(candidate: Candidate, families: Families) -> Candidate | None:
    """The same configuration of the family as it is today; None where that is not valid."""
    family = next((family for family in families if family.name == candidate.template), None)
    if family is None or not family.space.contains(candidate.config):
        return None
    return family.candidate(candidate.config)


def _mended(candidate: Candidate, families: Families) -> Candidate | None:
    """The same with one parameter at its default, where that is valid."""
    family = next((family for family in families if family.name == candidate.template), None)
    config = None if family is None else family.space.mended(candidate.config, by_any=True)
    return None if family is None or config is None else family.candidate(config)


def _winners(records: Records, families: Families) -> Iterator[_Won]:
    """On this GPU: those of the database, then those that ship."""
    for winner in records.store.winners(op=records.problem.op, device=records.identity.name):
        yield _Won(winner.record.candidate, winner.record.problem, winner.record.measurement.ms)
    yield from _shipped(records, families, here=True)


def _away(records: Records, families: Families) -> Iterator[_Won]:
    """On other GPUs of the same architecture."""
    spec = records.identity.spec
    devices = Identities(records.store)
    for winner in records.store.winners(op=records.problem.op):
        device = devices[winner.record.device]
        if device.kind != "replay" and device.spec.arch == spec.arch and device.spec.name != spec.name:
            yield _Won(winner.record.candidate, winner.record.problem, winner.record.measurement.ms)
    yield from _shipped(records, families, here=False)


def _shipped(records: Records, families: Families, *, here: bool) -> Iterator[_Won]:
    """Of each problem and GPU the fastest shipped winner by these families: some have others of another arithmetic."""
    spec, names = records.identity.spec, {family.name for family in families}
    lines = [
        line for line in shipped_winners()
        if line.problem.op == records.problem.op and line.candidate.template in names
        and line.identity.spec.arch == spec.arch and (line.identity.spec.name == spec.name) is here
    ]  # fmt: skip
    slowest_first = sorted(lines, key=lambda line: line.measurement.ms or math.inf, reverse=True)
    found = {(line.problem, line.identity): line for line in slowest_first}
    for place_of in dict.fromkeys((line.problem, line.identity) for line in lines):
        line = found[place_of]
        yield _Won(line.candidate, line.problem, line.measurement.ms)


def _alike(a: Problem, b: Problem, exact: Sequence[str]) -> bool:
    return all(a[name] == b[name] for name in exact)


def _akin(a: Problem, b: Problem, exact: Sequence[str]) -> bool:
    """Whether configurations good for one may be good for the other: equal sizes, another mask, layout or element type
    of the same width."""
    sizes = (name for name in exact if isinstance(b[name], int) and not isinstance(b[name], bool))
    return numpy_dtype(a.dtype).itemsize == numpy_dtype(b.dtype).itemsize and all(a[name] == b[name] for name in sizes)
