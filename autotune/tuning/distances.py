"""How far apart two values of a parameter are, in the ways in which values of kernels' parameters differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_TWOS = 8  # as far as a factor of two is told from one more
_FEW = 4  # of values that many at most, powers of two say nothing that equality does not


@dataclass(frozen=True)
class Distance:
    """One way in which the values of one parameter differ: from 0 for equal values to 1 for those furthest apart.

    `column`: the parameter's. `table`: shape (values, values).
    """

    column: int
    table: NDArray[np.float64]


def distances(values: Sequence[Sequence[Any]]) -> tuple[Distance, ...]:
    """All distances over parameters with these values.

    Of each parameter that has a choice, whether two values are equal; of sizes also how far apart their logarithms
    are, and by how many factors of two they differ: of 100 and 256, 256 is more like 96 to a warp.
    """
    found = []
    for column, choices in enumerate(values):
        if len(choices) > 1:
            found.append(Distance(column, 1.0 - np.eye(len(choices))))
        if len(choices) > 2 and all(_is_size(value) for value in choices):
            found.append(Distance(column, _apart(_logarithms(choices))))
            twos = [_twos(value) for value in choices]
            if len(choices) > _FEW and 1 < len(set(twos)) < len(choices):
                found.append(Distance(column, _apart(twos)))
    return tuple(found)


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _logarithms(choices: Sequence[float]) -> list[float]:
    """Of sizes; where some are negative, their ranks."""
    if min(choices) < 0:
        order = sorted(choices)
        return [float(order.index(value)) for value in choices]
    return [math.log2(max(value, 0.5)) for value in choices]


def _twos(value: float) -> float:
    """How often two divides a whole number; of others never, and 0 counts as the most."""
    if value != int(value):
        return 0.0
    whole = abs(int(value))
    return float(min(_MOST_TWOS, (whole & -whole).bit_length() - 1 if whole else _MOST_TWOS))


def _apart(places: Sequence[float]) -> NDArray[np.float64]:
    along = np.array(places, dtype=np.float64)
    table = np.abs(along[:, None] - along[None, :])
    return np.asarray(table / max(float(table.max()), 1e-9))
