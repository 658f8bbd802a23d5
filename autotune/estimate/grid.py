"""A launch's blocks on the GPU's SMs: when the last one ends.

Blocks start in the grid's order, each on the SM that has room first, and share it with those that are there: with more
of them on an SM each takes longer (`Schedule.clocks`).
"""

import heapq
import math
from collections.abc import Sequence
from functools import cache

from autotune.core.plan import Launch
from autotune.estimate.counts import Counts, working_blocks
from autotune.estimate.schedule import Schedule

_MOST_SCHEDULED = 16384  # blocks; of more the last wave matters little
_OVER = 1e-9  # share of a block that is left when it has ended


def clocks_of_grid(schedule: Schedule, launch: Launch, counts: Counts, sms: int) -> float:
    """Clocks from the first block's start to the last one's end."""
    blocks = working_blocks(launch, counts)
    if counts.first == 1.0 or blocks > _MOST_SCHEDULED:
        full, rest = divmod(blocks, sms * schedule.resident)
        last = schedule.clocks(math.ceil(rest / sms)) if rest else 0.0
        return full * schedule.clocks(schedule.resident) + last
    return _Sms(schedule, works_of(launch, counts), sms).run()


def works_of(launch: Launch, counts: Counts) -> list[float]:
    """Work of each block that has any over the mean, in the grid's order (x fastest)."""
    x, y, z = launch.grid
    size = launch.grid[counts.axis]
    before = math.prod(launch.grid[: counts.axis])
    last = x * y * (z - 1)  # the first block of the last z, in which the highest x may be idle
    busy = x - counts.idle // y
    places = (block // before % size for block in range(x * y * z) if block < last or block % x < busy)
    return [1.0 + (counts.first - 1.0) * (1.0 - 2.0 * place / max(1, size - 1)) for place in places]


def balance_of(launch: Launch, counts: Counts, sms: int) -> float:
    """The busiest SM's work over the mean."""
    blocks = working_blocks(launch, counts)
    if counts.first == 1.0 or blocks > _MOST_SCHEDULED:
        return math.ceil(blocks / sms) * sms / blocks
    busy = [0.0] * sms
    for work in works_of(launch, counts):
        heapq.heapreplace(busy, busy[0] + work)
    return max(busy) * sms / blocks


class _Sms:
    """Blocks under way, by SM: the work of each and the share that is left of it."""

    def __init__(self, schedule: Schedule, works: Sequence[float], sms: int) -> None:
        self._clocks = cache(lambda work, blocks: schedule.clocks(blocks, work))
        self._waiting = list(reversed(works))
        self._under_way: list[list[tuple[float, float]]] = [[] for _ in range(sms)]
        self._since = [0.0] * sms
        self._ends: list[tuple[float, int]] = []  # when the next block of an SM ends
        for _ in range(schedule.resident):
            for blocks in self._under_way:
                if self._waiting:
                    blocks.append((self._waiting.pop(), 1.0))

    def run(self) -> float:
        """Clocks until all have ended."""
        for sm, blocks in enumerate(self._under_way):
            if blocks:
                self._foresee(sm)
        moment = 0.0
        while self._ends:
            moment, sm = heapq.heappop(self._ends)
            self._pass(sm, moment)
        return moment

    def _foresee(self, sm: int) -> None:
        blocks = self._under_way[sm]
        soonest = min(left * self._clocks(work, len(blocks)) for work, left in blocks)
        heapq.heappush(self._ends, (self._since[sm] + soonest, sm))

    def _pass(self, sm: int, moment: float) -> None:
        """Bring an SM up to a moment at which a block of it ends; others take its place."""
        blocks, passed = self._under_way[sm], moment - self._since[sm]
        left = [(work, share - passed / self._clocks(work, len(blocks))) for work, share in blocks]
        staying = [block for block in left if block[1] > _OVER]
        room = min(len(blocks) - len(staying), len(self._waiting))
        staying += [(self._waiting.pop(), 1.0) for _ in range(room)]
        self._under_way[sm], self._since[sm] = staying, moment
        if staying:
            self._foresee(sm)
