"""Which processes are at a search, and so how it stands: one that was killed could not say that it ended.

They are noted beside the budget in the search's row, each with when it began and what tells it from others of its
number. Of one on this machine it is known whether it is gone; of others nothing is taken for known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from autotune.core.whereabouts import place
from autotune.store.records import Owner, Runner

_KEY = "runners"
_FORGOTTEN_S = 7 * 86400.0  # who goes on with a search after so long does not wait to hear of others


def joined(budget: Mapping[str, Any], known: Mapping[str, Any], owner: Owner | None, moment: float) -> dict[str, Any]:
    """A budget with who is at the search: those in the one `known`, as far as they are there, and the owner."""
    runners = [asdict(runner) for runner in standing(known) if moment - runner.since < _FORGOTTEN_S]
    if owner is not None:
        runners.append(asdict(Runner(owner, moment)))
    return {**plain(budget), **({_KEY: runners} if runners else {})}


def left(budget: Mapping[str, Any], owner: Owner | None) -> dict[str, Any]:
    """The budget without the owner, and without those that are gone."""
    runners = [asdict(runner) for runner in standing(budget) if owner is None or runner.owner.id != owner.id]
    return {**plain(budget), **({_KEY: runners} if runners else {})}


def plain(budget: Mapping[str, Any]) -> dict[str, Any]:
    """The budget alone."""
    return {name: value for name, value in budget.items() if name != _KEY}


def any_noted(budget: Mapping[str, Any]) -> bool:
    """Whether it is known who was at the search."""
    return any(True for _ in _noted(budget))


def standing(budget: Mapping[str, Any]) -> tuple[Runner, ...]:
    """Those that are not known to be gone."""
    return tuple(runner for runner in _noted(budget) if not runner.owner.is_gone(place()))


def _noted(budget: Mapping[str, Any]) -> Iterator[Runner]:
    found = budget.get(_KEY)
    for one in found if isinstance(found, list) else ():
        try:
            owner, since = Owner(**one["owner"]), float(one["since"])
            known = isinstance(owner.pid, int) and isinstance(owner.started, int)
        except (KeyError, TypeError, ValueError):  # an edited database
            continue
        if known:
            yield Runner(owner, since)
