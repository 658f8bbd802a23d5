"""How many candidates to have under way."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

AT_FIRST = 32
"""Most candidates under way until it is known how long builds and the device take."""

KNOWN = 8
"""Candidates after which it is."""

KEPT = 4
"""Least number of built candidates that may wait for the device."""

_MARGIN = 1.75  # builds, and times on the device, differ from one candidate to the next


@dataclass(frozen=True)
class Spent:
    """Seconds spent on so many candidates."""

    seconds: float
    candidates: int

    @property
    def each(self) -> float:
        return self.seconds / max(self.candidates, 1)


def enough_under_way(jobs: int, building: Spent, device: Spent) -> int:
    """As few as keep the device from waiting for builds, and never more than what keeps `jobs` builds going.

    A candidate that is asked before others' results are known is asked blind, so that more than needed cost quality.
    While the device is busy with one, one build has to end: seconds of a build / seconds on the device must be running.
    """
    most = jobs + max(2, jobs // 4)
    if building.candidates < KNOWN or device.candidates < KNOWN or device.seconds <= 0.0:
        return min(most, AT_FIRST)
    return min(most, math.ceil(_MARGIN * building.each / device.each) + max(3, jobs // 8))


def enough_waiting(building: Spent, device: Spent, left: Sequence[float] = ()) -> int | None:
    """How many built candidates to keep for the device, so that it is busy until one that is asked now is built.

    `left`: seconds until each of those that are being built is likely to be built; they come first. None as long as
    nobody knows how long anything takes.
    """
    if building.candidates < KNOWN or device.candidates < KNOWN or device.seconds <= 0.0:
        return None
    sooner = [*sorted(seconds for seconds in left if seconds < building.each), building.each]
    return max(KEPT, *(math.ceil(seconds / device.each) - before for before, seconds in enumerate(sooner)))
