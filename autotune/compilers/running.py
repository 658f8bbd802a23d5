"""Running one compiler: a time limit, no orphans, and a way to stop it from another thread."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.core.errors import BuildError

# A compiler driver starts processes of its own, so it runs in a process group led by this shell. The shell's stdin
# is a pipe that only we hold open: when we end in whatever way, kill -9 included, the pipe closes, `read` returns
# and the whole group goes.
_LIFELINE = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -9 -$$) >/dev/null 2>&1 & "$@" 3<&-; exit $?'
_running: dict[int, int] = {}  # process group by the thread that waits for it


@dataclass(frozen=True)
class Completed:
    """How a compiler ended: its exit status and everything it printed."""

    status: int
    output: str
    timed_out: bool


def run_compiler(command: Sequence[str], folder: Path, timeout_s: float) -> Completed:
    """Run a compiler in `folder`, its temporary files there too; stdout and stderr come together.

    Raises:
        BuildError: the program cannot be started, or `stop_compilers` stopped it.
    """
    lifeline, ours = os.pipe()
    try:
        process = _start(command, folder, lifeline)
        _running[threading.get_ident()] = process.pid
        completed = _wait(process, timeout_s)
    except OSError as error:
        raise BuildError(f"cannot start {command[0]}: {error}") from error
    finally:
        _kill_group(_running.pop(threading.get_ident(), None))
        os.close(ours)
    if completed.status == -signal.SIGKILL and not completed.timed_out:
        raise BuildError("the compiler was killed: the build was cancelled or the machine ran out of memory")
    return completed


def stop_compilers(threads: Collection[int]) -> None:
    """Kill the compilers that these threads (`threading.get_ident`) wait for; each of them gets a BuildError."""
    for thread in threads:
        _kill_group(_running.get(thread))


def _start(command: Sequence[str], folder: Path, lifeline: int) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _LIFELINE, "sh", *command],
            cwd=folder, env={**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}, stdin=lifeline,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(lifeline)


def _wait(process: subprocess.Popen[str], timeout_s: float) -> Completed:
    try:
        output, _ = process.communicate(timeout=timeout_s)
        return Completed(process.returncode, output, timed_out=False)
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        output, _ = process.communicate()
        return Completed(process.returncode, output, timed_out=True)


def _kill_group(group: int | None) -> None:
    # The lifeline's reader stays in the group until it is killed here, so the number cannot have become another's.
    if group is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
