"""Running one compiler, and telling what it says of a source from what became of it.

Only what a compiler says of the source is a compile error. A compiler that was killed from outside, found no memory, no
room or no process, or cannot be started is tried once more; then it is the machine that fails, not the candidate.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from autotune.core.child import Completed, run, signal_name
from autotune.core.confinement import compilers_environment
from autotune.core.errors import BuildError, CompileError, CompileTimeout
from autotune.core.words import printable

_STEPS_BACK = 5
"""How much less than ours a compiler's priority is: who judges candidates is what every core waits for."""

_CANNOT_EXECUTE = (126, 127)  # what shells answer

_OF_THE_SOURCE = re.compile(r"\berrors?\b|\bfatal\b|undefined reference|undefined symbol", re.IGNORECASE)
_OF_THE_MACHINE = re.compile(
    # Killed: what shells, the drivers of GCC and nvcc, and collect2 say.
    r"^(?:sh: .*)?Killed$|Killed signal|Terminated signal|^Terminated$|died due to signal (?:1|2|9|15)\b"
    r"|terminated with signal (?:1|2|9|15)\b"
    # No memory.
    r"|out of memory|cannot allocate memory|memory exhausted|memory allocation failure|bad_alloc"
    # No process, no program.
    r"|cannot fork|resource temporarily unavailable|cannot execute|error trying to exec|posix_spawn|^sh: .*not found$"
    r"|error while loading shared libraries|cannot find .(?:ld|as|collect2)\b|nvcc fatal"
    r"|permission denied|operation not permitted"
    # No room, no files.
    r"|no space left on device|disk quota exceeded|file too large|too many open files|input/output error"
    r"|read-only file system|stale file handle",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"static.?assert|#\s*error", re.IGNORECASE)  # words of the source's own


def compile_source(
    compiler: str, command: Sequence[str], folder: Path, limit_s: float, first_errors: Callable[[str], str], *,
    target: str = "",
) -> str:  # fmt: skip
    """Run a compiler in `folder`, its temporary files there too; gives all that it printed.

    The folder is named to it as ".": its path may hold what the shells that nvcc starts take for syntax.

    Args:
        compiler: how messages name it.
        command: program and arguments.
        folder: with the source.
        limit_s: seconds.
        first_errors: what of the output goes into a message.
        target: what is compiled for, as messages end: " for sm_90a".

    Raises:
        CompileError: the compiler refuses the source (CompileTimeout: it took longer than `limit_s`).
        BuildError: the machine fails, twice; or `autotune.core.child.stop` stopped it.
    """
    cause = ""
    for _ in range(2):
        done = _run(compiler, command, folder, limit_s)
        if isinstance(done, str):
            cause = done
        elif done.stopped:
            raise BuildError("the build was cancelled")
        elif done.timed_out:
            raise CompileTimeout(f"{compiler} took longer than the limit of {limit_s:g} s{target}")
        elif done.status == 0:
            return done.output
        elif refuses_source(done):
            raise CompileError(f"{compiler}{target}: {_first(done, first_errors) or f'exit status {done.status}'}")
        else:
            cause = _cause(done, first_errors)
    raise BuildError(f"{compiler} failed{target}, twice and for no fault of the source: {cause}")


def refuses_source(done: Completed) -> bool:
    """Whether a compiler that failed says that the source is wrong, and nothing says that the machine is."""
    if done.status < 0 or done.status in _CANNOT_EXECUTE:
        return False
    lines = [line.strip() for line in done.output.splitlines()]
    if any(_OF_THE_MACHINE.search(line) and not _QUOTED.search(line) for line in lines):
        return False
    return any(_OF_THE_SOURCE.search(line) for line in lines)


def _run(compiler: str, command: Sequence[str], folder: Path, limit_s: float) -> Completed | str:
    environment = {**compilers_environment(), "TMPDIR": ".", "LC_ALL": "C"}
    try:
        return run([*_behind(), *command], limit_s, folder=folder, environment=environment)
    except OSError as error:
        return f"cannot start {compiler}: {error}"


@cache
def _behind() -> tuple[str, ...]:
    nice = shutil.which("nice")
    return () if nice is None else (nice, "-n", str(_STEPS_BACK))


def _first(done: Completed, first_errors: Callable[[str], str]) -> str:
    """Compilers quote the source, which may hold anything."""
    return printable(first_errors(done.output))


def _cause(done: Completed, first_errors: Callable[[str], str]) -> str:
    if done.status < 0:
        return f"it was killed by {signal_name(done.status)}, from outside or for lack of memory"
    machine = [line for line in done.output.splitlines() if _OF_THE_MACHINE.search(line.strip())]
    said = printable("\n".join(machine[:3])) or _first(done, first_errors)
    return f"exit status {done.status}" + (f": {said}" if said else "")
