"""Whether arrays share memory, with one another or within themselves: results need elements of their own to go to."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from operator import sub
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.answers.arrays import DeviceArray
from autotune.core.dtypes import DTYPES
from autotune.core.errors import UsageError

_MOST_PLACES = 4096
"""Addresses of so many calls are remembered."""

_MOST_WORK: Any = 100_000
"""Steps that NumPy takes to tell whether two arrays share an element: some milliseconds. Beyond them they count as if.

Any: NumPy's stubs know of no number but 0 and -1.
"""

_ANYWHERE = 1 << 46
"""An address for arrays of which strides alone matter. Nobody reads what lies there."""


class Layout(NamedTuple):
    """Extents, strides in bytes, and the bytes of an element."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, array: DeviceArray) -> "Layout":
        size = DTYPES[array.dtype].size
        return cls(array.shape, tuple(stride * size for stride in array.strides), size)

    @classmethod
    def of_view(cls, view: NDArray[Any]) -> "Layout":
        return cls(view.shape, view.strides, view.itemsize)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first byte, and the one behind the last, as seen from the element at index 0."""
        steps = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + self.size

    def at(self, address: int) -> NDArray[Any]:
        """As NumPy sees it: its places, not what is there."""
        return np.asarray(_At(self, address))


class _At:
    def __init__(self, layout: Layout, address: int) -> None:
        shape, strides, size = layout
        self.__array_interface__ = {
            "shape": shape, "strides": strides, "typestr": f"|V{size}", "data": (address, True), "version": 3,
        }  # fmt: skip


@lru_cache(_MOST_PLACES)
def share(one: Layout, other: Layout, distance: int) -> bool:
    """Whether two arrays have a byte in common; `distance`: from where one begins to where the other does."""
    try:
        return np.shares_memory(one.at(_ANYWHERE), other.at(_ANYWHERE + distance), max_work=_MOST_WORK)
    except RuntimeError:  # NumPy's TooHardError, which has moved between versions
        return True


def overlaps_itself(layout: Layout) -> bool:
    """Whether two indices lead to elements with a byte in common."""
    axes = sorted((abs(stride), n) for n, stride in zip(layout.shape, layout.strides, strict=True) if n > 1)
    end = layout.size
    nested = True
    for stride, n in axes:
        nested = nested and stride >= end
        end += (n - 1) * stride
    return not nested and any(_meets(axes, axis, layout.size) for axis in range(len(axes)))


def _meets(axes: Sequence[tuple[int, int]], axis: int, size: int) -> bool:
    """Whether two elements meet whose indices are alike before an axis, and differ there."""
    stride, n = axes[axis]
    inner = [*axes[axis + 1 :]]
    strides, shape = tuple(step for step, _ in inner), tuple(count for _, count in inner)
    return share(Layout((n - 1, *shape), (stride, *strides), size), Layout(shape, strides, size), -stride)


class Apart:
    """Tells of arrays of one layout each, wherever they lie, whether what is written overlaps another of them."""

    def __init__(self, layouts: Mapping[str, Layout], written: Collection[str]) -> None:
        self._names, self._layouts = [*layouts], [*layouts.values()]
        self.seen: set[tuple[int, ...]] = set()
        """Addresses of arrays that do not overlap."""
        self._near = []
        for one, other in combinations(range(len(self._names)), 2):
            if not {self._names[one], self._names[other]}.isdisjoint(written):
                (low, high), (first, end) = self._layouts[one].bounds, self._layouts[other].bounds
                self._near.append((one, other, low - end, high - first))
        self._widest = max((max(-low, high) for *_, low, high in self._near), default=0)

    def check(self, addresses: Sequence[int]) -> None:
        """Look at arrays whose elements at index 0 lie at these addresses.

        Raises:
            UsageError: two overlap, at least one of which is written; or it would take too long to rule that out.
        """
        ordered = sorted(addresses)
        far = min(map(sub, ordered[1:], ordered), default=self._widest) >= self._widest  # apart, whichever they are
        for one, other, low, high in () if far else self._near:
            distance = addresses[other] - addresses[one]
            if low < distance < high and share(self._layouts[one], self._layouts[other], distance):
                raise UsageError(
                    f"{self._names[one]} and {self._names[other]} overlap in memory: "
                    "results need memory of their own, apart from that of the other arrays"
                )
        if len(self.seen) >= _MOST_PLACES:
            self.seen.clear()
        self.seen.add(tuple(addresses))
