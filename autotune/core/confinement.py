"""What processes that run others' code are given: a part of the environment, and limits.

This keeps mistakes from doing damage. It keeps nobody out: a template, its reference and a build are code that runs
with the user's rights.
"""

import os
import resource
from pathlib import Path

_PASSED = frozenset(
    ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX")
) | {"LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME", "CC", "CXX"}
_FAMILIES = ("LC_", "PYTHON", "CUDA_", "NVIDIA_", "OMP_", "GOMP_", "OPENBLAS_", "MKL_", "COV_CORE_", "COVERAGE_")
_OWN = "AUTOTUNE_"
_KEPT = frozenset(("AUTOTUNE_DB",))

COMPILERS_HEAR = (
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH", "LD_PRELOAD",
)  # fmt: skip
"""Variables that change what compilers make of the same command: all that they are given but for where programs are."""

_FOR_COMPILERS = frozenset(("PATH", "HOME", "LD_LIBRARY_PATH", *COMPILERS_HEAR))

_INITIAL_PROCESSES = "pid:[4026531836]"
_MORE_TASKS = 4096


def part_of_environment() -> dict[str, str]:
    """What a process needs that runs kernels, references or templates: no database's URL, nobody's credentials."""
    return {name: value for name, value in os.environ.items() if _is_passed(name)}


def compilers_environment() -> dict[str, str]:
    """What compilers are given."""
    return {name: value for name, value in os.environ.items() if name in _FOR_COMPILERS}


def _is_passed(name: str) -> bool:
    if name.startswith(_OWN):
        return name not in _KEPT
    return name in _PASSED or name in COMPILERS_HEAR or name.startswith(_FAMILIES)


def confine(*, memory: bool = True) -> None:
    """Limit this process, and what it starts: files and memory as large as the machine's memory, so many more
    processes than there are, no dumps of its memory.

    `memory`: not where the CUDA driver is loaded, which maps far more than it uses.
    """
    machine = memory_of_machine()
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, machine)
    if memory:
        _lower(resource.RLIMIT_DATA, machine, raisable=True)
    tasks = _tasks_of_user()
    if tasks is not None:
        _lower(resource.RLIMIT_NPROC, tasks + _MORE_TASKS)


def allow_addresses(nbytes: int) -> None:
    """Before so many bytes are mapped of which few will be touched: the limit of memory counts them all the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        raised = soft + nbytes
        resource.setrlimit(resource.RLIMIT_DATA, (raised if hard < 0 else min(raised, hard), hard))


def confine_memory(nbytes: int) -> None:
    """Let this process map so much more than it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + nbytes)


def memory_of_machine() -> int:
    """Bytes: the machine's, or what a container is allowed of it."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            whole = min(whole, int(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError):  # another version of cgroups, or no limit
            continue
    return whole


def _lower(which: int, limit: int, *, raisable: bool = False) -> None:
    soft, hard = resource.getrlimit(which)
    allowed = min(other for other in (soft, hard, limit) if other != resource.RLIM_INFINITY)
    resource.setrlimit(which, (allowed, hard if raisable else allowed))


def _tasks_of_user() -> int | None:
    """Threads of this user's processes, which the limit counts all; None where not all of them are seen."""
    try:
        if os.readlink("/proc/self/ns/pid") != _INITIAL_PROCESSES:  # noqa: PTH115 - no path
            return None
        folders = [entry for entry in os.scandir("/proc") if entry.name.isdecimal()]
    except OSError:
        return None
    return sum(_tasks(entry) for entry in folders)


def _tasks(entry: os.DirEntry[str]) -> int:
    try:
        return len(os.listdir(f"{entry.path}/task")) if entry.stat().st_uid == os.getuid() else 0  # noqa: PTH208
    except OSError:  # it has ended
        return 0
