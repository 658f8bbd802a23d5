"""Where a process runs, and whether one that ran here has ended: what tells apart workers of a fleet.

A process number means something within one PID namespace of one boot of one kernel only: two containers of a host may
both have a process 7, and share the host's name. Both are read from `/proc`; where there is none, nothing is known.
"""

import os
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"
_START = 19  # of the fields of `stat` after the program's name: clock ticks from boot to the process's start


@cache
def place() -> str:
    """The boot and the PID namespace of this process; empty where that cannot be told."""
    try:
        return f"{_BOOT.read_text(encoding='ascii').strip()} {(_PROC / 'self/ns/pid').readlink()}"
    except (OSError, ValueError):
        return ""


def started(pid: int) -> int:
    """When a process of this PID namespace began, in clock ticks since boot; 0 where that cannot be told."""
    fields = _stat(pid)
    return int(fields[_START]) if fields else 0


def gone(pid: int, began: int) -> bool:
    """Whether the process of this PID namespace that had this number, and began then, has ended.

    A number may be another process's by now; one that has ended and was not waited for counts as gone.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is there, but another user's
        pass
    fields = _stat(pid)
    return bool(fields) and (fields[0] in {"Z", "X"} or (began != 0 and int(fields[_START]) != began))


def _stat(pid: int) -> list[str]:
    try:
        if (_PROC / "self").readlink().name != str(os.getpid()):
            return []  # this /proc shows another namespace, in which numbers mean other processes
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
