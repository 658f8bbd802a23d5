import os
import threading
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.compilers.cache import BuildCache
from autotune.compilers.pool import BuildPool
from autotune.core.child import run
from autotune.core.errors import BuildError, CompileError
from tests.processes import DRIVER, alive, child_of, eventually


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
        if run(["/bin/sh", "-c", DRIVER], 60, folder=self.folder).stopped:
            raise BuildError("the build was cancelled")
        return "never"


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
