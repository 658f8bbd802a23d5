"""Where the references of attention are cut: blocks of a head's query rows, tiles of keys; and who computes them.

The matrix of scores is looked at some 40 times. What fits in a core's cache is looked at several times as fast, and
blocks are computed on all cores.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.core.threads import WORKERS, has_help

Result = TypeVar("Result")
Mask = NDArray[np.bool_]

_ROWS, _FEWEST_ROWS = 256, 64
_KEYS = 512
_PAIRS = 2**18
"""Of queries and keys: a matrix of scores in float64 that a core's second cache holds; fewer are not worth a thread."""


@dataclass(frozen=True)
class Block:
    """Query rows of head `h` in batch entry `b`, and how many keys of head `kv` the last of them sees.

    Row i sees the keys up to i + `shift`, with a causal mask.
    """

    b: int
    h: int
    kv: int
    rows: slice
    seen: int
    shift: int | None

    @property
    def tiles(self) -> Iterator[slice]:
        """The keys that are seen, some at a time."""
        return (slice(start, min(start + _KEYS, self.seen)) for start in range(0, self.seen, _KEYS))

    def hidden(self, keys: slice) -> Mask | None:
        """Which of these keys each row does not see, (rows, keys); None where every row sees all of them."""
        if self.shift is None or keys.stop <= self.rows.start + self.shift + 1:
            return None
        last_seen = np.arange(self.rows.start, self.rows.stop) + self.shift
        mask: Mask = np.arange(keys.start, keys.stop)[None, :] > last_seen[:, None]
        return mask


def blocks(q: NDArray[Any], k: NDArray[Any], causal: bool, *, whole_rows: bool) -> list[Block]:
    """Of queries (B, NH, T, HS) and keys (B, NH_kv, T_kv, HS) all blocks, in order.

    `whole_rows`: a row's scores are wanted together, not by tiles; of long ones fewer at a time.
    """
    (B, NH, T), (NH_kv, T_kv) = q.shape[:3], k.shape[1:3]
    step = max(_FEWEST_ROWS, min(_ROWS, _PAIRS // max(1, T_kv))) if whole_rows else _ROWS
    rows = [slice(start, min(start + step, T)) for start in range(0, T, step)]
    shift = T_kv - T if causal else None
    return [
        Block(b, h, h * NH_kv // NH, part, T_kv if shift is None else max(0, min(T_kv, part.stop + shift)), shift)
        for b in range(B)
        for h in range(NH)
        for part in rows
    ]


def in_order(work: Callable[[Block], Result], parts: Sequence[Block]) -> Iterator[Result]:
    """What `work` makes of each block, in their order, computed on all cores; NumPy lets go of the interpreter.

    By the calling thread alone where the others have work of their own (`has_help`). Only some more than there are
    cores are under way, lest results of long problems fill the memory.
    """
    if not has_help() or sum((part.rows.stop - part.rows.start) * part.seen for part in parts) <= _PAIRS:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        waiting: deque[Future[Result]] = deque()
        for part in parts:
            if len(waiting) == 2 * WORKERS:
                yield waiting.popleft().result()
            waiting.append(pool.submit(work, part))
        while waiting:
            yield waiting.popleft().result()


def do_all(work: Callable[[Block], object], parts: Sequence[Block]) -> None:
    """Have `work` write what is of each block where it belongs, on all cores; raises what the first to fail raises."""
    deque(in_order(work, parts), maxlen=0)
