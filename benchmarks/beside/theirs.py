"""Kernel Tuner over a list of kernels: `python -m benchmarks.beside.theirs JOB CACHE`, in a process of its own.

JOB is a pickled `Job`, CACHE the file that Kernel Tuner keeps of what it has done: of a process that a kernel takes
along, or that never ends, it has what was done until then.
"""

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.core.child import Child
from autotune.core.errors import UsageError
from autotune.devices.recorded import RecordedSpace
from benchmarks.beside.kernels import Kernel

NUMBER, THREADS = "beside_number", "beside_threads"
"""Parameters, which Kernel Tuner defines as macros: no kernel has such names."""


@dataclass(frozen=True)
class Job:
    """Kernels in their order, what they are called with, and what must come out to `atol`; Kernel Tuner's backend."""

    kernels: tuple[Kernel, ...]
    arguments: tuple[NDArray[Any] | np.generic, ...]
    answer: tuple[NDArray[np.float64] | None, ...]
    atol: float
    flags: tuple[str, ...]
    backend: str = "PYCUDA"


@dataclass(frozen=True)
class Ran:
    """Milliseconds of the kernels that were let through, by name, how many it got to, and how it ended (empty: well).

    `seconds` are the whole process's.
    """

    times: Mapping[str, float]
    done: int
    ending: str
    seconds: float


def run(job: Job, limit_s: float) -> Ran:
    """Kernel Tuner in a process of its own, for at most `limit_s` seconds.

    Raises:
        OSError: the process cannot be started.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "job", Path(folder) / "cache.json"
        path.write_bytes(pickle.dumps(job))
        command = [sys.executable, "-m", "benchmarks.beside.theirs", str(path), str(cache)]
        child = Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, timed_out = child.read(limit_s)
        finally:
            child.close()
        ending = ended(output, child.wait(0.0) or 0, limit_s if timed_out else None)
        times, done = kept(cache, job)
        return Ran(times, done, ending, time.monotonic() - start)


def kept(cache: Path, job: Job) -> tuple[dict[str, float], int]:
    """Times by kernel of what Kernel Tuner's cache file has, be it whole or not, and how many entries that are."""
    try:
        space = RecordedSpace.load(cache)
    except UsageError:  # it did not get that far
        return {}, 0
    place = list(space.parameters).index(NUMBER)
    found = {job.kernels[int(key[place])].name: result.median_ms for key, result in space.results.items()}
    return {name: ms for name, ms in found.items() if ms is not None}, len(found)


def ended(output: str, status: int, limit_s: float | None) -> str:
    """How the process ended, for people; empty where it came to its end."""
    if limit_s is not None:
        return f"still at it after {limit_s:g} s, then killed"
    if status == 0:
        return ""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"ended with status {status}: {lines[-1][:160] if lines else 'it said nothing'}"


def options(job: Job) -> dict[str, Any]:
    """The arguments of `kernel_tuner.tune_kernel`, but for its cache.

    Which configuration a kernel is, is one parameter; the threads of a block are another one that follows from it.
    """
    kernels = job.kernels

    def chosen(params: Mapping[str, Any]) -> Kernel:
        return kernels[int(params[NUMBER])]

    def agree(params: Mapping[str, Any]) -> bool:  # a lambda's source would be parsed, together with those beside it
        return chosen(params).threads == int(params[THREADS])

    return {
        "kernel_name": kernels[0].kernel,
        "kernel_source": lambda params: chosen(params).code,
        "problem_size": lambda params: chosen(params).grid,
        "arguments": list(job.arguments),
        "tune_params": {NUMBER: list(range(len(kernels))), THREADS: sorted({k.threads for k in kernels})},
        "restrictions": [agree],
        "grid_div_x": [], "grid_div_y": [], "grid_div_z": [],
        "block_size_names": [THREADS],
        "smem_args": {"size": lambda params: chosen(params).smem},
        "answer": list(job.answer),
        "atol": job.atol,
        "lang": job.backend,
        "compiler_options": [*job.flags, "-I", kernels[0].include],
        "strategy": "brute_force",
        "quiet": True,
    }  # fmt: skip


def main() -> None:
    """Tune what the job says."""
    job: Job = pickle.loads(Path(sys.argv[1]).read_bytes())
    kernel_tuner = importlib.import_module("kernel_tuner")
    os.chdir(Path(sys.argv[2]).parent)  # it writes sources where it works, and a killed process leaves them there
    kernel_tuner.tune_kernel(**options(job), cache=sys.argv[2])


if __name__ == "__main__":
    main()
