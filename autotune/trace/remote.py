"""A process that traces, since a faulty kernel may hang it or tear it down."""

import signal
import threading
from multiprocessing.connection import Connection
from types import TracebackType

from autotune.core.blas import ONE_THREAD
from autotune.core.channel import LOST, start_module
from autotune.core.child import Child
from autotune.core.confinement import part_of_environment
from autotune.core.errors import AutotuneError, BuildError, LaunchError
from autotune.trace.task import Traced, TraceTask

LIMIT_S = 120.0
"""How long one candidate may take, its build included."""


class TracerKilled(LaunchError):
    """SIGKILL or SIGTERM ended the traced run: hardly by its kernel, rather from outside or for lack of memory."""


class TracingProcess:
    """Traces one candidate after the other; started when first needed, and again after a crash. A context manager.

    It runs `autotune.trace.remote_main` and nothing of the program that asks, whose main module may have no guard.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()  # guards what `stop` looks at
        self._stopped = False
        self._process: Child | None = None
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
            LaunchError: the kernels took longer than the limit, or the process died (TracerKilled: from outside).
            BuildError: the process cannot be started, or `stop` was called.
        """
        try:
            connection = self._running()
            connection.send(task)
            if not connection.poll(self._limit_s):
                self.close()
                raise LaunchError(
                    f"the traced run took longer than the limit of {self._limit_s:g} s: the kernel may loop for ever; "
                    "else take a smaller problem or a higher limit (--timeout)"
                )
            answer = connection.recv()
        except LOST as error:
            raise self._death() from error
        if isinstance(answer, AutotuneError):
            raise answer
        assert isinstance(answer, Traced)
        return answer

    def close(self) -> None:
        """End the process and what it started."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stop(self) -> None:
        """End the process for good, from another thread: a run under way fails."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()

    def _running(self) -> Connection:
        if self._connection is None:
            with self._lock:
                if self._stopped:
                    raise BuildError("the tracing was stopped")
                try:
                    self._process, self._connection = start_module(
                        "autotune.trace.remote_main", environment={**ONE_THREAD, **part_of_environment()}
                    )
                except OSError as error:
                    raise BuildError(f"the process that traces cannot be started: {error}") from error
        return self._connection

    def _death(self) -> LaunchError:
        status = None if self._process is None else self._process.wait(5.0)
        self.close()
        kind = TracerKilled if status in (-signal.SIGKILL, -signal.SIGTERM) else LaunchError
        return kind(f"the traced run tore its process down (exit status {status})")
