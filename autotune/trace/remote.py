"""A process that traces, since a faulty kernel may hang it or tear it down."""

import signal
from multiprocessing.connection import Connection
from types import TracebackType

from autotune.core.blas import ONE_THREAD
from autotune.core.channel import LOST, Companion
from autotune.core.confinement import part_of_environment
from autotune.core.errors import AutotuneError, BuildError, LaunchError
from autotune.trace.task import Traced, TraceTask

LIMIT_S = 120.0
"""How long one candidate may take, its build included."""


class TracerKilled(LaunchError):
    """SIGKILL or SIGTERM ended the traced run: hardly by its kernel, rather from outside or for lack of memory."""


class TracerTimeout(LaunchError):
    """The traced run took longer than its limit."""


class TracingProcess:
    """Traces one candidate after the other; started when first needed, and again after a crash. A context manager.

    It runs `autotune.trace.remote_main` and nothing of the program that asks, whose main module may have no guard.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._companion = Companion("autotune.trace.remote_main")

    def __enter__(self) -> "TracingProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the process, unless it runs, without waiting for it.

        Raises:
            BuildError: it cannot be started, or `stop` was called.
        """
        self._running()

    def trace(self, task: TraceTask) -> Traced:
        """What `run_task` does, with its errors.

        Raises:
            LaunchError: the kernels took longer than the limit (TracerTimeout), or the process died (TracerKilled: from
                outside).
            BuildError: the process cannot be started, or `stop` was called.
        """
        try:
            connection = self._running()
            connection.send(task)
            if not connection.poll(self._limit_s):
                self.close()
                raise TracerTimeout(
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
        self._companion.close()

    def stop(self) -> None:
        """End the process for good, from another thread: a run under way fails."""
        self._companion.kill(for_good=True)

    def _running(self) -> Connection:
        if self._companion.connection is not None:
            return self._companion.connection
        try:
            return self._companion.start(environment={**ONE_THREAD, **part_of_environment()})
        except OSError as error:
            raise BuildError(f"the process that traces cannot be started: {error}") from error

    def _death(self) -> LaunchError:
        process = self._companion.process
        status = None if process is None else process.wait(5.0)
        self.close()
        kind = TracerKilled if status in (-signal.SIGKILL, -signal.SIGTERM) else LaunchError
        return kind(f"the traced run tore its process down (exit status {status})")
