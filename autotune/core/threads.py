"""How many threads compute beside others, and starting one where the system may refuse it."""

import os
import threading
from collections.abc import Callable

from autotune.core.errors import AutotuneError

WORKERS = min(16, os.cpu_count() or 1)
"""Threads that make references; compilers, which use the cores as well, step back."""

_thread = threading.local()


def all_at_work() -> None:
    """Said by each of `WORKERS` threads that have work of their own: what they call starts no others beside them."""
    _thread.one_of_all = True


def has_help() -> bool:
    """Whether what the calling thread has to compute may be spread over `WORKERS` threads."""
    return not getattr(_thread, "one_of_all", False)


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """A running thread, which does not keep the program from ending.

    Raises:
        AutotuneError: the system starts no more of them.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(error) from error
    return thread


def no_thread(error: RuntimeError) -> AutotuneError:
    """What to say where a thread could not be started."""
    return AutotuneError(f"{error}: allow more processes and threads (ulimit -u), or take fewer builds (--jobs)")
