"""Child processes: each ends with this process, however this one ends, and takes along all that it started.
(One that is `lasting` ends by itself, a moment later.)

A child leads a session and a process group of its own, so that Ctrl-C reaches this process alone; it ignores what a
scheduler sends to all processes of a job that is to end, since it is for this process to say what is still done.

It begins as a shell, which leaves a reader in the group before it becomes the program. The other end of the reader's
pipe is open in this process only: when we end, by kill -9 too, the pipe closes, and the reader kills the whole group.
The reader also keeps the group's number from becoming another's until `close` has killed it.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# `{pipe}` is a digit: dash knows no others. The reader is a grandchild, lest the program wait for a child it never had.
_LEADER = (
    'trap "" HUP INT TERM; exec {pipe}<&0 </dev/null; '
    '( (read -r _ <&{pipe}; kill -9 -$$) >/dev/null 2>&1 & ); exec "$@" {pipe}<&-'
)

# A program that has something to put in order when we end: it sees the end of its stdin, and nobody kills it.
_LASTING = 'trap "" HUP INT TERM; exec "$@"'

_LAST_WORDS_S = 5.0

_ours: set[int] = set()  # our ends of the pipes
_awaited: dict[int, "Child"] = {}  # by the thread that waits in `run`


class Child:
    """A running program. `kill` may be called by any thread at any time, everything else by one thread."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdout: int | IO[bytes] | None = subprocess.DEVNULL,
        stderr: int | IO[bytes] | None = subprocess.DEVNULL,
        files: Collection[int] = (),
        lasting: bool = False,
    ) -> None:
        """Start a program; it reads nothing.

        Args:
            command: program and arguments. A program that cannot be executed ends with status 126 or 127.
            folder: where it runs.
            environment: all of its environment; by default this process's.
            stdout: as `subprocess` has it; so is `stderr`.
            files: file descriptors that it inherits, under the same numbers. The reader keeps them open too.
            lasting: it outlives us by what it has to put in order: its stdin ends when we do, and it must end then.

        Raises:
            OSError: there is no such folder, or no process can be started.
        """
        theirs, self._pipe = os.pipe()
        _ours.add(self._pipe)
        digit = next(number for number in range(3, 10) if number not in files)
        self._lock = threading.Lock()
        self._gone = self.killed = False
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LASTING if lasting else _LEADER.format(pipe=digit), "sh", *command], cwd=folder,
                env=environment,
                stdin=theirs, stdout=stdout, stderr=stderr, pass_fds=tuple(files), start_new_session=True,
            )  # fmt: skip
        except BaseException:
            self._cut()
            raise
        finally:
            os.close(theirs)

    @property
    def pid(self) -> int:
        """The program's number, which is its group's too."""
        return self._process.pid

    def wait(self, limit_s: float) -> int | None:
        """The exit status (negative: the signal that ended it); None if it still runs after `limit_s` seconds."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def read(self, limit_s: float) -> tuple[str, bool]:
        """All output until the program ends, and whether it had to be killed after `limit_s` seconds for that."""
        try:
            output, _ = self._process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._kill()
            try:
                output, _ = self._process.communicate(timeout=_LAST_WORDS_S)
            except subprocess.TimeoutExpired as late:  # what has left the group may keep its output open
                output = late.output or b""
            return output.decode(errors="replace"), True
        return output.decode(errors="replace"), False

    def kill(self) -> None:
        """Kill the program with all that it started; `killed` says so from then on."""
        self.killed = True
        self._kill()

    def close(self) -> None:
        """Kill what is left and wait for its end."""
        self._kill()
        self._process.wait()
        self._cut()

    def finish(self, limit_s: float) -> None:
        """Let a lasting program put things in order, and wait for its end; after `limit_s` seconds it is left alone."""
        self._cut()
        self.wait(limit_s)

    def _kill(self) -> None:
        with self._lock:
            if not self._gone:  # else the number may be another group's by now
                self._gone = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _cut(self) -> None:
        if self._pipe in _ours:
            _ours.remove(self._pipe)
            os.close(self._pipe)
            self._pipe = -1


@dataclass(frozen=True)
class Completed:
    """How a program ended: its status (negative: a signal), what it printed, and whether we ended it, and why."""

    status: int
    output: str
    timed_out: bool = False
    stopped: bool = False


def run(
    command: Sequence[str], limit_s: float, *, folder: Path | None = None, environment: Mapping[str, str] | None = None,
    stderr: int = subprocess.STDOUT,
) -> Completed:  # fmt: skip
    """Run a program to its end, at most `limit_s` seconds; by default stdout and stderr come together.

    Raises:
        OSError: as for `Child`.
    """
    child = Child(command, folder=folder, environment=environment, stdout=subprocess.PIPE, stderr=stderr)
    thread = threading.get_ident()
    _awaited[thread] = child
    try:
        output, timed_out = child.read(limit_s)
    finally:
        del _awaited[thread]
        child.close()
    return Completed(child.wait(0.0) or 0, output, timed_out, child.killed)


def stop(threads: Collection[int]) -> None:
    """Kill what these threads (`threading.get_ident`) wait for in `run`, whose result says so."""
    for thread in threads:
        child = _awaited.get(thread)
        if child is not None:
            child.kill()


def signal_name(status: int) -> str:
    """`SIGKILL` for the status of what it ended."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _forget() -> None:
    """A process that was forked off must not keep alive what belongs to its parent."""
    for pipe in _ours:
        with contextlib.suppress(OSError):
            os.close(pipe)
    _ours.clear()


os.register_at_fork(after_in_child=_forget)
