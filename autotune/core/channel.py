"""Child processes that run a module of this package and are talked to: Python objects go back and forth.

The channel is the child's stdout until `open_channel` takes it; what is printed after that goes to its stderr.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Collection, Mapping
from multiprocessing.connection import Connection
from typing import IO

from autotune.core.child import Child

_STDOUT, _STDERR = 1, 2

LOST = (EOFError, BrokenPipeError, ConnectionResetError)
"""What sending and receiving raise where the other end is gone."""


def start_module(
    module: str, *, arguments: Collection[str] = (), environment: Mapping[str, str] | None = None,
    stderr: int | IO[bytes] | None = None, files: Collection[int] = (),
) -> tuple[Child, Connection]:  # fmt: skip
    """Start `python -m module`, which must call `open_channel` first; the connection's other end is there.

    Args:
        module: imported from where this process imports, which is what its `sys.path` becomes.
        arguments: of the command.
        environment: all of it but the path; by default this process's.
        stderr: None: where this process's goes.
        files: file descriptors that it inherits.

    Raises:
        OSError: no process can be started.
    """
    ours, theirs = socket.socketpair()
    # It must import this very package before it is told our path.
    root = os.pathsep.join(path for path in sys.path if path)
    known = {**(os.environ if environment is None else environment), "PYTHONPATH": root}
    command = [sys.executable, "-P", "-m", module, *arguments]
    with ours, theirs:
        child = Child(command, environment=known, stdout=theirs.fileno(), stderr=stderr, files=files)
        connection = Connection(ours.detach())
    with contextlib.suppress(*LOST):  # it has ended already, which whoever talks to it next will notice
        connection.send([*sys.path])
    return child, connection


def open_channel() -> Connection:
    """In the child: the connection to the process that started it.

    Raises:
        EOFError: that process is gone.
    """
    connection = Connection(os.dup(_STDOUT))
    os.dup2(_STDERR, _STDOUT)
    sys.path[:] = connection.recv()
    return connection
