"""A space that is given by a list of its valid configurations."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.core.values import Config, Value


class ListedSpace:
    """What the search asks of a space (`joint_space.SpaceLike`), for configurations that somebody has listed."""

    def __init__(self, parameters: Mapping[str, Sequence[Value]], configs: Iterable[Mapping[str, Value]]) -> None:
        self._configs = [dict(config) for config in configs]
        self._positions = [{value: i for i, value in enumerate(values)} for values in parameters.values()]
        rows = [
            [places[config[name]] for name, places in zip(parameters, self._positions, strict=True)]
            for config in self._configs
        ]
        self._names = tuple(parameters)
        self._rows = np.array(rows, dtype=np.int64).reshape(len(rows), len(self._names))
        cards = [len(values) for values in parameters.values()]
        self._strides = np.array([math.prod(cards[i + 1 :]) for i in range(len(cards))], dtype=np.int64)
        self._flat = np.sort(self._rows @ self._strides)

    @property
    def size(self) -> int:
        return len(self._configs)

    def contains(self, config: Config) -> bool:
        try:
            row = [places[config[name]] for name, places in zip(self._names, self._positions, strict=True)]
        except (KeyError, TypeError):
            return False
        return len(config) == len(self._names) and bool(self.holds(np.array([row], dtype=np.int64))[0])

    def configs(self) -> Iterator[dict[str, Value]]:
        return iter(self._configs)

    def sample(self, rng: np.random.Generator) -> dict[str, Value]:
        return self._configs[int(rng.integers(self.size))]

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        if count >= self.size:
            return self._rows
        return self._rows[rng.choice(self.size, count, replace=False, shuffle=False)]

    def holds(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        if not self.size:
            return np.zeros(len(rows), dtype=bool)
        flat = rows @ self._strides
        places = np.searchsorted(self._flat, flat)
        found: NDArray[np.bool_] = self._flat[np.minimum(places, self.size - 1)] == flat
        return found

    def starts(self) -> list[dict[str, Value]]:
        """Nobody has named any: the first that is listed."""
        return self._configs[:1]

    def why_not(self, config: Config) -> str | None:
        """A list knows no reasons."""
        return None if self.contains(config) else "it is not in the list of valid configurations"

    def mended(self, config: Config, *, by_any: bool = False) -> dict[str, Value] | None:  # noqa: ARG002
        """A list knows no defaults, either."""
        return dict(config) if self.contains(config) else None
