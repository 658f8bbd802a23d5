"""The process that traces: `python -m autotune.trace.remote_main`.

It answers one task at a time over one connection until the other end closes. What kernels print goes to the parent's
stderr. `autotune.trace.remote` is the parent's side.
"""

import ctypes
import warnings

from autotune.core.channel import LOST, open_channel
from autotune.core.confinement import confine
from autotune.core.errors import AutotuneError, LaunchError, SharedCacheWarning
from autotune.trace.task import Traced, TraceTask, run_task


def main() -> None:
    """Entry point of the process."""
    warnings.simplefilter("ignore", SharedCacheWarning)  # who asks has said so
    confine(memory=False)  # marks of what was written are mapped for all of a buffer, and mostly never touched
    try:
        connection = open_channel()
        while True:
            answer = answer_to(connection.recv())
            ctypes.CDLL(None).fflush(None)  # this process is killed in the end
            connection.send(answer)
    except LOST:
        pass  # the parent is done with us


def answer_to(task: TraceTask) -> Traced | AutotuneError:
    """What `run_task` returns or raises."""
    try:
        return run_task(task)
    except AutotuneError as error:
        return error
    except MemoryError as error:
        return LaunchError(f"not enough memory to trace {task.problem}: {error}; take a smaller problem")


if __name__ == "__main__":
    main()
