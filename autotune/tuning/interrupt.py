"""Ctrl-C, and what schedulers and terminals send: once to finish with the best so far, twice to stop at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C; the end of a job or a container; a terminal that is closed."""


class Stoppable(Protocol):
    """Something that ends soon after `stop` is set."""

    stop: bool


@contextmanager
def interruptible(search: Stoppable) -> Iterator[None]:
    """Within the block the first signal of `ENDING` sets `search.stop`, the next one raises KeyboardInterrupt.

    Outside the main thread, where Python allows no handlers, nothing is changed; nor is a signal that is ignored, as
    `nohup` has it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if search.stop:
            raise KeyboardInterrupt
        search.stop = True

    previous = {number: signal.signal(number, handle) for number in ENDING if _heard(number)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def end_as_ctrl_c() -> None:
    """From now on the end of a job, or of the terminal, raises KeyboardInterrupt, as Ctrl-C does."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _heard(number: signal.Signals) -> bool:
    return number is signal.SIGINT or signal.getsignal(number) not in (signal.SIG_IGN, None)
