"""Processes of tests: one that starts another, whether a process lives, waiting for what must happen."""

import time
from collections.abc import Callable
from pathlib import Path

# A stand-in for a compiler driver: a shell that starts a long process of its own and writes down its number.
DRIVER = "sleep 600 & echo $! > child; wait"


def child_of(folder: Path) -> int:
    """The number that `DRIVER`, run in this folder, wrote down."""
    return int(eventually(lambda: (folder / "child").read_text().strip() if (folder / "child").exists() else ""))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def eventually(condition: Callable[[], object]) -> str:
    """What the condition says once it says something; a minute is long enough on any machine."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return str(found)
