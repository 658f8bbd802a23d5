"""Programs that come with the compiler and read what it made: objdump, addr2line, readelf."""

import subprocess

from autotune.core.child import run, signal_name
from autotune.core.errors import BuildError

_LIMIT_S = 120.0


def ask_binutils(purpose: str, command: list[str]) -> str:
    """What the program prints.

    Raises:
        BuildError: it is missing or failed; `purpose` says what it was for ("disassemble").
    """
    try:
        done = run(command, _LIMIT_S, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise BuildError(f"cannot {purpose} with {command[0]}: {error}") from error
    if done.timed_out:
        raise BuildError(f"cannot {purpose} with {command[0]}: it took longer than {_LIMIT_S:g} s")
    if done.status != 0:
        how = f"killed by {signal_name(done.status)}" if done.status < 0 else f"exit status {done.status}"
        raise BuildError(f"cannot {purpose} with {command[0]}: {how}; install binutils")
    return done.output
