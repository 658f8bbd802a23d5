"""The process that traces: `python -m autotune.trace.remote_main CONNECTION PARENT`.

It answers one task at a time over one connection until the other end closes, and never outlives its parent. What
kernels print goes where its stdout goes: to the parent's stderr. `autotune.trace.remote` is the parent's side.
"""

import ctypes
import os
import sys
import threading
import time
from multiprocessing.connection import Connection

from autotune.core.errors import AutotuneError, LaunchError
from autotune.trace.task import Traced, TraceTask, run_task

_LOOK_S = 1.0  # how often it is looked whether the parent lives


def main() -> None:
    """Entry point of the process."""
    handle, parent = (int(text) for text in sys.argv[1:])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    connection = Connection(handle)
    try:
        sys.path[:] = connection.recv()
        while True:
            answer = answer_to(connection.recv())
            ctypes.CDLL(None).fflush(None)  # this process is killed in the end
            connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent is done with us


def answer_to(task: TraceTask) -> Traced | AutotuneError:
    """What `run_task` returns or raises."""
    try:
        return run_task(task)
    except AutotuneError as error:
        return error
    except MemoryError as error:
        return LaunchError(f"not enough memory to trace {task.problem}: {error}; take a smaller problem")


def _end_with(parent: int) -> None:
    """A kernel that loops for ever does not notice that nobody waits for it."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(0)


if __name__ == "__main__":
    main()
