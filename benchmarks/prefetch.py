"""References made ahead, in other processes, while the GPU searches: a long problem's take longer than its search."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from autotune.core.problem import Problem
from autotune.devices.factory import DeviceOpener
from autotune.devices.messages import Prepare
from autotune.ladder.shared_worker import SharedWorker
from autotune.ops.expected import expectations, save
from autotune.ops.registry import get_op

_AHEAD = 3  # finished or under way for each process: what they keep in the temporary folder stays bounded


class References:
    """What problems' outputs must be, made in the order given by `processes` processes; a context manager.

    Those are of low priority, so that compilers come first.
    """

    def __init__(self, problems: Sequence[Problem], seed: int, processes: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="autotune-references-"))
        self._seed = seed
        self._queue = list(problems)
        self._ahead = _AHEAD * processes
        self._pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_yield_to_others)
        self._made: dict[Problem, Future[Path]] = {}
        self._fill()

    def next_of(self, problems: Sequence[Problem]) -> Problem:
        """The first of the problems whose references are there, or will never be; waits for one."""
        while True:
            for problem in problems:
                future = self._made.get(problem)
                if problem not in self._queue and (future is None or future.done()):
                    return problem
            pending = [self._made[problem] for problem in problems if problem in self._made]
            if not pending:
                return problems[0]
            wait(pending, return_when=FIRST_COMPLETED)

    def take(self, problem: Problem) -> Path | None:
        """The file that `autotune.ops.expected.save` wrote for it, the caller's to delete; None if there is none."""
        future = self._made.pop(problem, None)
        self._fill()
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()

    def close(self) -> None:
        """Stop all work and delete what was not taken."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list((self._pool._processes or {}).values()):  # no public way to stop what runs
            process.terminate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "References":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> None:
        try:
            while self._queue and len(self._made) < self._ahead:
                path = self._folder / f"{len(self._queue)}.pickle"
                self._made[self._queue[0]] = self._pool.submit(_make, self._queue[0], self._seed, path)
                del self._queue[0]
        except BrokenExecutor:  # a process was killed, for memory perhaps: whoever searches makes his own
            self._queue.clear()


class ReadyWorker(SharedWorker):
    """A worker process for one search after the other, which finds its references made."""

    def __init__(self, opener: DeviceOpener, references: References) -> None:
        super().__init__(opener)
        self._references = references

    def _prepare(self, message: Prepare) -> None:
        path = self._references.take(message.problem)
        if path is not None:
            self._keep.seek(0)
            self._keep.truncate()
            with path.open("rb") as file:
                shutil.copyfileobj(file, self._keep, 1 << 24)
            self._keep.flush()
            path.unlink()
        super()._prepare(message)


def _yield_to_others() -> None:
    os.nice(10)


def _make(problem: Problem, seed: int, path: Path) -> Path:
    with path.open("wb+") as file:
        save(expectations(get_op(problem.op), problem, seed), file)
    return path
