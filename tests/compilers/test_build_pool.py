import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.pool import BuildPool
from autotune.compilers.running import run_compiler
from autotune.core.errors import BuildError, CompileError

# A stand-in for a compiler driver: a shell that starts a long process of its own and writes down its number.
DRIVER = "sleep 60 & echo $! > child; wait"


@dataclass(frozen=True)
class Answer:
    value: int

    def build(self, cache: BuildCache) -> int:
        if self.value < 0:
            raise CompileError(f"{self.value} does not compile")
        return self.value * 2


@dataclass(frozen=True)
class Drive:
    folder: Path

    def build(self, cache: BuildCache) -> str:
        return run_compiler(["/bin/sh", "-c", DRIVER], self.folder, 60).output


def child_of(folder: Path) -> int:
    return int(eventually(lambda: (folder / "child").read_text().strip() if (folder / "child").exists() else ""))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(condition: Callable[[], object]) -> str:
    for _ in range(1000):
        found = condition()
        if found:
            return str(found)
        time.sleep(0.01)
    raise AssertionError("it never happened")


def test_output_and_status(tmp_path: Path) -> None:
    done = run_compiler(["/bin/sh", "-c", "echo out; echo err >&2; pwd; echo $TMPDIR; exit 3"], tmp_path, 10)
    assert done.output.splitlines() == ["out", "err", str(tmp_path), str(tmp_path)]
    assert (done.status, done.timed_out) == (3, False)


def test_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    assert run_compiler(["/bin/echo", "a  b", "$HOME", "'"], tmp_path, 10).output == "a  b $HOME '\n"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert run_compiler([str(tmp_path / "nothing")], tmp_path, 10).status == 127
    with pytest.raises(BuildError, match="cannot start"):
        run_compiler(["/bin/true"], tmp_path / "no folder", 10)


def test_a_time_limit_ends_the_compiler_and_what_it_started(tmp_path: Path) -> None:
    done = run_compiler(["/bin/sh", "-c", f"echo begun; {DRIVER}"], tmp_path, 0.3)
    assert done.timed_out
    assert done.output == "begun\n"
    pid = child_of(tmp_path)
    eventually(lambda: not alive(pid))


def test_killing_the_process_ends_its_compilers(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from autotune.compilers.running import run_compiler;"
        f"run_compiler(['/bin/sh', '-c', {DRIVER!r}], pathlib.Path(sys.argv[1]), 60)"
    )
    search = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    pid = child_of(tmp_path)
    assert alive(pid)
    os.kill(search.pid, signal.SIGKILL)
    search.wait()
    eventually(lambda: not alive(pid))


def test_results_and_typed_failures(tmp_path: Path) -> None:
    with BuildPool(BuildCache(tmp_path), jobs=2) as pool:
        futures = [pool.submit(Answer(value)) for value in range(5)]
        failing = pool.submit(Answer(-1))
        assert [future.result() for future in futures] == [0, 2, 4, 6, 8]
        with pytest.raises(CompileError, match="-1 does not compile"):
            failing.result()


def test_as_many_jobs_as_asked_run_at_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(3, timeout=10)

    class Meet:
        def build(self, cache: BuildCache) -> int:
            return barrier.wait()

    with BuildPool(BuildCache(tmp_path), jobs=3) as pool:
        assert {future.result() for future in [pool.submit(Meet()) for _ in range(3)]} == {0, 1, 2}


def test_one_job_a_core_by_default(tmp_path: Path) -> None:
    with BuildPool(BuildCache(tmp_path)) as pool:
        assert pool.jobs == os.cpu_count()


def test_closing_kills_running_compilers_and_drops_the_queue(tmp_path: Path) -> None:
    pool = BuildPool(BuildCache(tmp_path), jobs=1)
    running, queued = pool.submit(Drive(tmp_path)), pool.submit(Answer(1))
    pid = child_of(tmp_path)
    pool.close()
    with pytest.raises(BuildError, match="cancelled"):
        running.result(timeout=0)
    with pytest.raises(CancelledError):
        queued.result(timeout=0)
    eventually(lambda: not alive(pid))
    with pytest.raises(BuildError, match="closed"):
        pool.submit(Answer(1))
