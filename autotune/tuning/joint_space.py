"""The joint space of a search: the valid configurations of every family that supports the problem."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.core.candidate import Candidate, make_candidate
from autotune.core.values import Config, Value

_DRAWS = 64  # tries at an unseen sample before the space is enumerated


class SpaceLike(Protocol):
    """What the search asks of one family's space (`autotune.families.space.Space`)."""

    @property
    def size(self) -> int:
        """Number of valid configurations."""

    def contains(self, config: Config) -> bool:
        """Whether the configuration is valid."""

    def configs(self) -> Iterator[dict[str, Value]]:
        """All valid configurations."""

    def sample(self, rng: np.random.Generator) -> dict[str, Value]:
        """A random valid configuration."""

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Up to `count` random valid configurations, none twice; all where there are no more than `count`.

        A row each: the position of every parameter's value in its list.
        """

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of the rows, written as those of `draw`, is valid."""

    def starts(self) -> Sequence[dict[str, Value]]:
        """What the family would have tried first, best first; at least one."""

    def why_not(self, config: Config) -> str | None:
        """Why a configuration is not valid; None when it is."""

    def mended(self, config: Config, *, by_any: bool = False) -> dict[str, Value] | None:
        """The configuration if it is valid, else with one parameter at its default; None where that is not either."""


@dataclass(frozen=True)
class Family:
    """A kernel family in a search: name and version of its template, its parameters, its valid space."""

    name: str
    hash: str
    parameters: Mapping[str, tuple[Value, ...]]
    defaults: Mapping[str, Value]
    space: SpaceLike

    def candidate(self, config: Config) -> Candidate:
        """A candidate of this family, parameters in the template's order."""
        return make_candidate(self.name, self.hash, {name: config[name] for name in self.parameters})

    def lists(self, candidate: Candidate) -> bool:
        """Whether all values of a candidate are among those of the parameters."""
        return all(value in self.parameters.get(name, ()) for name, value in candidate.values)


Seen = Callable[[Candidate], bool]


class Families:
    """Several families searched together. Those without a valid configuration are set apart in `empty`."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = {family.name: family for family in families if family.space.size > 0}
        self.empty = tuple(family for family in families if family.space.size == 0)
        self.size = sum(family.space.size for family in self)

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())

    def __len__(self) -> int:
        return len(self._families)

    def __getitem__(self, name: str) -> Family:
        return self._families[name]

    def has(self, candidate: Candidate) -> bool:
        """Whether the candidate, valid or not, belongs to these very versions of the families.

        One with a value that a family does not list (because its parameters were narrowed) does not.
        """
        family = self._families.get(candidate.template)
        return family is not None and family.hash == candidate.template_hash and family.lists(candidate)

    def why_not(self, candidate: Candidate) -> str | None:
        """Why the candidate is not valid; None when it is."""
        space, config = self._families[candidate.template].space, candidate.config
        return None if space.contains(config) else space.why_not(config) or "it is not in the valid space"

    def starts(self) -> tuple[Candidate, ...]:
        """What the families would have tried first: the first of each, then the second of each, and so on."""
        rounds = itertools.zip_longest(*([family.candidate(c) for c in family.space.starts()] for family in self))
        return tuple(candidate for turn in rounds for candidate in turn if candidate is not None)

    def candidates(self) -> Iterator[Candidate]:
        """Every valid candidate, family by family."""
        for family in self:
            yield from (family.candidate(config) for config in family.space.configs())

    def unseen(self, rng: np.random.Generator, seen: Seen) -> Candidate | None:
        """A random valid candidate that is not `seen`, families at equal odds; None when all are seen."""
        names = list(self._families)
        for _ in range(_DRAWS):
            family = self._families[names[int(rng.integers(len(names)))]]
            candidate = family.candidate(family.space.sample(rng))
            if not seen(candidate):
                return candidate
        rest = (candidate for candidate in self.candidates() if not seen(candidate))
        return _pick(rest, rng)


def _pick(candidates: Iterator[Candidate], rng: np.random.Generator) -> Candidate | None:
    """One of the candidates, each as likely as the others."""
    chosen = None
    for count, candidate in enumerate(candidates, start=1):
        if rng.integers(count) == 0:
            chosen = candidate
    return chosen
