"""A process that traces, since a faulty kernel may hang it or tear it down."""

import ctypes
import multiprocessing
import os
from multiprocessing.connection import Connection
from types import TracebackType

from autotune.blas import one_blas_thread
from autotune.check.task import Traced, TraceTask, run_task
from autotune.errors import AutotuneError, LaunchError

LIMIT_S = 120.0
"""How long one candidate may take, its build included."""


class TracingProcess:
    """Traces one candidate after the other; started when first needed, and again after a crash. A context manager."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> "TracingProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def trace(self, task: TraceTask) -> Traced:
        """What `run_task` does, with its errors.

        Raises:
            LaunchError: the kernels took longer than the limit, or the process died.
        """
        connection = self._running()
        try:
            connection.send(task)
            if not connection.poll(self._limit_s):
                self.close()
                raise LaunchError(
                    f"the traced run took longer than the limit of {self._limit_s:g} s: the kernel may loop for ever; "
                    "else take a smaller problem or a higher limit (--timeout)"
                )
            answer = connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            status = self._ended()
            raise LaunchError(f"the traced run tore its process down (exit status {status})") from error
        if isinstance(answer, AutotuneError):
            raise answer
        assert isinstance(answer, Traced)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._connection = self._process = None

    def _running(self) -> Connection:
        if self._connection is None:
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            with one_blas_thread():
                self._process.start()
            theirs.close()
            self._connection = ours
        return self._connection

    def _ended(self) -> int | None:
        status = None
        if self._process is not None:
            self._process.join(timeout=5.0)
            status = self._process.exitcode
        self.close()
        return status


def _serve(connection: Connection) -> None:
    os.dup2(2, 1)  # what kernels print is no part of the command's output
    while True:
        try:
            task = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        answer = _answer(task)
        ctypes.CDLL(None).fflush(None)  # this process is killed in the end
        connection.send(answer)


def _answer(task: TraceTask) -> Traced | AutotuneError:
    try:
        return run_task(task)
    except AutotuneError as error:
        return error
    except MemoryError as error:
        return LaunchError(f"not enough memory to trace {task.problem}: {error}; take a smaller problem")
