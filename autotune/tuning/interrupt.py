"""Ctrl-C: once to finish with the best so far, twice to stop at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """Something that ends soon after `stop` is set."""

    stop: bool


@contextmanager
def interruptible(search: Stoppable) -> Iterator[None]:
    """Within the block the first SIGINT sets `search.stop`, the next one raises KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if search.stop:
            raise KeyboardInterrupt
        search.stop = True

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
