"""A process that traces, since a faulty kernel may hang it or tear it down."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from types import TracebackType

from autotune.core.blas import ONE_THREAD
from autotune.core.errors import AutotuneError, LaunchError
from autotune.trace.task import Traced, TraceTask

LIMIT_S = 120.0
"""How long one candidate may take, its build included."""

_STDERR = 2


class TracingProcess:
    """Traces one candidate after the other; started when first needed, and again after a crash. A context manager.

    It runs `autotune.trace.remote_main` and nothing of the program that asks, whose main module may have no guard.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
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
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            status = self._ended()
            raise LaunchError(f"the traced run tore its process down (exit status {status})") from error
        if isinstance(answer, AutotuneError):
            raise answer
        assert isinstance(answer, Traced)
        return answer

    def close(self) -> None:
        """End the process and what it started."""
        connection, process = self._connection, self._process
        self._connection = self._process = None
        if connection is not None:
            connection.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _running(self) -> Connection:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            handle = theirs.fileno()
            command = [sys.executable, "-P", "-m", "autotune.trace.remote_main", str(handle), str(os.getpid())]
            # It imports this very package before it is told our path.
            environment = {**ONE_THREAD, **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            with theirs:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=_STDERR, pass_fds=(handle,), start_new_session=True,
                    env=environment,
                )  # fmt: skip
            self._connection = Connection(ours.detach())
            self._connection.send([*sys.path])
        return self._connection

    def _ended(self) -> int | None:
        """The exit status, where the process has ended by itself."""
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(timeout=5.0)
        self.close()
        return status
