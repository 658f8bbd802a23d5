"""Estimating candidates in the build pool: a traced build, short runs in a process of their own, then the model."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.compilers.cache import BuildCache
from autotune.core.errors import BuildError, FaultFound, LaunchError
from autotune.core.measurement import KernelResources
from autotune.core.plan import LaunchPlan
from autotune.emulator.building import build_emulator
from autotune.estimate.counting import count, short_source
from autotune.estimate.counts import Counts
from autotune.estimate.model import Estimate, predict
from autotune.estimate.schedule import schedules_of
from autotune.ops.op import Op
from autotune.trace.remote import TracerKilled, TracingProcess
from autotune.trace.task import Traced, TraceTask

LIMIT_S = 30.0
"""How long one traced run may take."""


class Counter:
    """Traces one candidate at a time; the process starts when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = TracingProcess(LIMIT_S)

    def count(self, task: TraceTask, op: Op, whole: LaunchPlan) -> tuple[Counts, ...]:
        """`autotune.estimate.counting.count`, with its errors; BuildError once stopped, or when killed from outside.

        FaultFound where the checker finds something wrong: a race is one even if the numbers were right.
        """
        with self._lock:
            return count(self._trace, task, op, whole)

    def stop(self) -> None:
        """End the process; a run under way fails."""
        self._process.stop()

    def close(self) -> None:
        """Wait for its end, once no run is under way."""
        self._process.close()

    def _trace(self, task: TraceTask) -> Traced:
        traced = self._traced(task)
        if traced.trace.findings and traced.trace.complete:
            raise FaultFound(f"{traced.trace.findings[0]} (on {task.problem})")
        return traced

    def _traced(self, task: TraceTask) -> Traced:
        try:
            return self._process.trace(task)
        except TracerKilled:
            pass
        try:
            return self._process.trace(task)
        except TracerKilled as error:
            raise BuildError(f"{error}, twice: somebody kills it, or the machine has too little memory") from error


@dataclass(frozen=True)
class EstimateRequest:
    """An estimate to make, for a `BuildPool`.

    `whole`: the plan of the problem that is tuned; `cubin` and `resources`: of its kernels.
    """

    counter: Counter
    task: TraceTask
    op: Op
    whole: LaunchPlan
    cubin: Path
    resources: Sequence[KernelResources]

    def build(self, cache: BuildCache) -> Estimate:
        """Build traced, run, predict.

        Raises:
            FaultFound: the traced run showed a race, or something else that is wrong.
            LaunchError: a traced run failed or took too long, or the machine code cannot be read or followed.
            CompileError: the traced build is refused.
            BuildError: the machinery failed.
        """
        traced = build_emulator(short_source(self.op, self.task), cache, traced=True, arch=self.task.spec.arch)
        counts = self.counter.count(self.task, self.op, self.whole)
        cache.give_back(traced)
        try:
            schedules = schedules_of(self.cubin, self.whole, self.resources, counts, self.task.spec)
        except BuildError as error:  # nothing is built there: it is about this candidate's code
            raise LaunchError(str(error)) from error
        return predict(self.whole, self.resources, counts, schedules, self.task.spec)
