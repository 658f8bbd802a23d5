"""Child processes that run a module of this package and are talked to: Python objects go back and forth.

The channel is the child's stdout until `open_channel` takes it; what is printed after that goes to its stderr.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Collection, Mapping
from multiprocessing.connection import Connection
from typing import IO

from autotune.core.child import Child

_STDOUT, _STDERR = 1, 2

LOST = (EOFError, BrokenPipeError, ConnectionResetError)
"""What sending and receiving raise where the other end is gone."""


def start_module(
    module: str, *, arguments: Collection[str] = (), environment: Mapping[str, str] | None = None,
    stderr: int | IO[bytes] | None = None, files: Collection[int] = (), lasting: bool = False,
) -> tuple[Child, Connection]:  # fmt: skip
    """Start `python -m module`, which must call `open_channel` first; the connection's other end is there.

    Args:
        module: imported from where this process imports, which is what its `sys.path` becomes.
        arguments: of the command.
        environment: all of it but the path; by default this process's.
        stderr: None: where this process's goes.
        files: file descriptors that it inherits.
        lasting: as `Child` has it.

    Raises:
        OSError: no process can be started.
    """
    ours, theirs = socket.socketpair()
    # It must import this very package before it is told our path.
    root = os.pathsep.join(path for path in sys.path if path)
    known = {**(os.environ if environment is None else environment), "PYTHONPATH": root}
    command = [sys.executable, "-P", "-m", module, *arguments]
    with ours, theirs:
        child = Child(command, environment=known, stdout=theirs.fileno(), stderr=stderr, files=files, lasting=lasting)
        connection = Connection(ours.detach())
    with contextlib.suppress(*LOST):  # it has ended already, which whoever talks to it next will notice
        connection.send([*sys.path])
    return child, connection


class Companion:
    """A module's process that is talked to, one at a time, started again as often as needed.

    Used by one thread; only `kill` may be called by others, which may be waiting for an answer then.
    """

    def __init__(self, module: str) -> None:
        """A process for `python -m module`, which is not started yet."""
        self._module = module
        self._lock = threading.Lock()  # guards what `kill` looks at
        self._for_good = False
        self.process: Child | None = None
        self.connection: Connection | None = None

    def start(
        self, *, environment: Mapping[str, str], arguments: Collection[str] = (),
        stderr: int | IO[bytes] | None = None, files: Collection[int] = (),
    ) -> Connection:  # fmt: skip
        """Start the process, as `start_module` does.

        Raises:
            OSError: no process can be started, or it was killed for good (InterruptedError).
        """
        with self._lock:
            if self._for_good:
                raise InterruptedError("it was stopped for good")
            self.process, self.connection = start_module(
                self._module, arguments=arguments, environment=environment, stderr=stderr, files=files
            )
            return self.connection

    def kill(self, *, for_good: bool = False) -> None:
        """Kill the process; the thread that waits for it sees it dead. After `for_good` no new one is started."""
        with self._lock:
            self._for_good |= for_good
            if self.process is not None:
                self.process.kill()

    def close(self) -> None:
        """End the process and all that it started."""
        with self._lock:
            process, self.process = self.process, None
        if process is not None:
            process.close()
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def open_channel() -> Connection:
    """In the child: the connection to the process that started it.

    Raises:
        EOFError: that process is gone.
    """
    connection = Connection(os.dup(_STDOUT))
    os.dup2(_STDERR, _STDOUT)
    sys.path[:] = connection.recv()
    return connection
