"""The real evaluator: render, static checks, builds on all cores, then the worker that owns the device.

On a GPU one binary is built and run. On the emulator two: a cubin for the target GPU, for its resources and the
estimate, and the emulated one, which is executed and verified on the op's reduced problem.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import Empty, Queue

from autotune.build.artifact import Artifact
from autotune.build.cache import BuildCache
from autotune.build.nvcc import CubinRequest
from autotune.build.pool import BuildPool
from autotune.candidate import Candidate
from autotune.check.task import TraceTask
from autotune.devices.client import WorkerClient
from autotune.devices.identity import DeviceIdentity
from autotune.devices.messages import OpSource, Prepare
from autotune.errors import AutotuneError, BuildError, CompileError, LaunchError
from autotune.estimate.fallback import estimate
from autotune.estimate.model import Estimate
from autotune.estimate.occupancy import kernel_resources, static_failure
from autotune.measure import Verdict
from autotune.measurement import KernelResources, Measurement, Timing
from autotune.ops.base import Op
from autotune.ops.locate import OpRef
from autotune.outcome import Outcome
from autotune.plan import LaunchPlan
from autotune.problem import Problem
from autotune.render import render
from autotune.search.counter import Counter, EstimateRequest
from autotune.search.emulated import EmulatorRequest
from autotune.search.evaluator import Finished, Load
from autotune.search.lane import Lane
from autotune.source import KernelSource
from autotune.template import Template

RETIME_ROUNDS = 3

EMULATED_RATE = 2e8
"""Operations a second that the emulator reaches with all repeats of a verification, on a slow and busy machine."""


@dataclass(frozen=True)
class Task:
    """What is tuned and where: all that evaluating a candidate needs to know."""

    op: Op
    op_source: OpSource
    problem: Problem
    templates: Mapping[str, Template]
    identity: DeviceIdentity
    environment: Mapping[str, str]
    seed: int
    limit_s: float

    @property
    def emulated(self) -> bool:
        """Whether kernels run on the emulator, and times are estimates."""
        return self.identity.kind == "cpu"

    @property
    def executed(self) -> Problem:
        """The problem that is executed and verified."""
        return self.op.emulated(self.problem) if self.emulated else self.problem

    @property
    def patience_s(self) -> float:
        """How long a candidate may take: the limit, and on the emulator what its work takes besides."""
        return self.limit_s + (self.op.flops(self.executed) / EMULATED_RATE if self.emulated else 0.0)

    def render(self, candidate: Candidate, problem: Problem) -> KernelSource:
        """The candidate's source for a problem."""
        return render(self.templates[candidate.template], problem, candidate.config, self.identity.spec)

    def estimate_request(self, job: "_Job", counter: Counter) -> EstimateRequest | None:
        """How to estimate a candidate; None for an op that no other process can resolve."""
        if not isinstance(self.op_source, OpRef) or job.cubin is None:
            return None
        candidate = job.source.candidate
        path = self.templates[candidate.template].path.resolve()
        task = TraceTask(self.op_source, path, self.problem, candidate.values, self.identity.spec, blocks=None)
        return EstimateRequest(counter, task, self.op, job.source.plan, job.cubin, job.resources)


@dataclass
class _Job:
    """A candidate under way, and what is known about it so far."""

    source: KernelSource
    build_seconds: float = 0.0
    compiler: str = ""
    resources: tuple[KernelResources, ...] = ()
    cubin: Path | None = None


@dataclass
class _Run:
    """A binary with its launches on the device, or back from it; candidates that share it share the verdict."""

    first: Candidate
    verdict: Verdict | None = None
    waiting: list[_Job] = field(default_factory=list)


class Pipeline:
    """Builds run in a pool, the device in its lane; every step ends in an event that `poll` takes from one queue."""

    def __init__(self, task: Task, client: WorkerClient, cache: BuildCache, jobs: int | None) -> None:
        self._task = task
        self._cache = cache
        self._pool = BuildPool(cache, jobs)
        self._counter = Counter()
        self._events: Queue[Callable[[], None]] = Queue()
        self._finished: list[Finished] = []
        self._building = 0
        self._build_seconds = 0.0
        self._runs: dict[tuple[str, LaunchPlan], _Run] = {}
        prepare = Prepare(task.op_source, task.executed, task.seed)
        self._lane = Lane(client, prepare, task.patience_s, timed=not task.emulated, failed=self._fail)

    @property
    def capacity(self) -> int:
        """Builds on all cores, and a few candidates built ahead of the device."""
        return self._pool.jobs + max(2, self._pool.jobs // 4)

    def submit(self, candidate: Candidate) -> None:
        """Render and begin to build.

        Raises:
            TemplateError: the template itself is wrong, which no other candidate would change.
        """
        job = _Job(self._task.render(candidate, self._task.problem))
        request = CubinRequest(job.source, self._task.identity.spec.arch)
        self._build(request, job, self._cubin_built)

    def poll(self, timeout_s: float) -> Sequence[Finished]:
        """Candidates that have finished; waits for the first."""
        deadline = time.monotonic() + timeout_s
        while not self._finished:
            try:
                self._events.get(timeout=max(0.0, deadline - time.monotonic()))()
            except Empty:
                break
        while not self._events.empty():
            self._events.get()()
        done, self._finished = self._finished, []
        return done

    def note_best(self, ms: float) -> None:
        """Lets the lane give up early on what is slower."""
        self._lane.note_best(ms)

    def load(self) -> Load:
        """Builds running or queued, candidates waiting for the device, seconds spent on both."""
        return Load(self._building, self._lane.waiting, self._build_seconds, self._lane.busy_seconds)

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | None]:
        """Build again what the cache has lost, then time all in turn. Ends the pipeline's own work."""
        programs = []
        for candidate in candidates:
            source = self._task.render(candidate, self._task.problem)
            request = CubinRequest(source, self._task.identity.spec.arch)
            programs.append((request.build(self._cache), source.plan))
        return self._lane.retime(tuple(programs), RETIME_ROUNDS)

    def drop(self) -> None:
        """Stop all builds and forget what waits."""
        self._counter.close()
        self._pool.close()
        self._lane.drop()

    def close(self) -> None:
        """Stop builds and worker."""
        self._counter.close()
        self._pool.close()
        self._lane.close()

    # --- steps of a candidate, each run by `poll` in the caller's thread

    def _build(
        self, request: CubinRequest | EmulatorRequest, job: _Job, then: Callable[[_Job, Artifact], None]
    ) -> None:
        self._building += 1
        future: Future[Artifact] = self._pool.submit(request)
        future.add_done_callback(lambda done: self._events.put(partial(self._built, job, done, then)))

    def _built(self, job: _Job, future: "Future[Artifact]", then: Callable[[_Job, Artifact], None]) -> None:
        self._building -= 1
        try:
            artifact = future.result()
        except CompileError as error:
            self._finish(job, Verdict(Outcome.COMPILE_ERROR, str(error)))
        except CancelledError:
            pass
        else:
            job.build_seconds += artifact.seconds
            self._build_seconds += 0.0 if artifact.cached else artifact.seconds
            then(job, artifact)

    def _cubin_built(self, job: _Job, artifact: Artifact) -> None:
        spec, plan = self._task.identity.spec, job.source.plan
        job.compiler = artifact.compiler
        failure = static_failure(plan, artifact, spec)
        if failure is not None:
            self._finish(job, Verdict(Outcome.INFEASIBLE, failure))
            return
        job.resources = kernel_resources(plan, artifact, spec)
        job.cubin = artifact.path
        if self._task.emulated:
            source = self._task.render(job.source.candidate, self._task.executed)
            self._build(EmulatorRequest(source), job, partial(self._queue, source.plan))
        else:
            self._queue(plan, job, artifact)

    def _queue(self, plan: LaunchPlan, job: _Job, artifact: Artifact) -> None:
        """Hand the binary to the device, unless the same one, launched alike, is there or has been there."""
        key = artifact.binary_hash, plan
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = _Run(job.source.candidate)
            self._lane.put(artifact, plan, lambda *result: self._events.put(partial(self._judged, run, job, *result)))
        elif run.verdict is None:
            run.waiting.append(job)
        else:
            self._finish(job, _shared(run, run.verdict))

    def _judged(self, run: _Run, job: _Job, verdict: Verdict, seconds: float) -> None:
        run.verdict = verdict
        self._finish(job, verdict, seconds)
        for other in run.waiting:
            self._finish(other, _shared(run, verdict))
        run.waiting.clear()

    def _finish(self, job: _Job, verdict: Verdict, seconds: float = 0.0) -> None:
        """Record the verdict; on the emulator with an estimate of a correct candidate's time."""
        if not self._task.emulated or verdict.outcome is not Outcome.OK:
            self._record(job, verdict, seconds, verdict.timing)
            return
        request = self._task.estimate_request(job, self._counter)
        if request is None:
            self._record(job, verdict, seconds, self._fallback(job))
            return
        self._building += 1
        future = self._pool.submit(request)
        future.add_done_callback(lambda done: self._events.put(partial(self._estimated, job, verdict, seconds, done)))

    def _estimated(self, job: _Job, verdict: Verdict, seconds: float, future: "Future[Estimate]") -> None:
        self._building -= 1
        try:
            timing = future.result().timing
        except CancelledError:
            return
        except (LaunchError, CompileError, BuildError):
            timing = self._fallback(job)  # labelled as such
        self._record(job, verdict, seconds, timing)

    def _record(self, job: _Job, verdict: Verdict, seconds: float, timing: Timing | None) -> None:
        environment = {**self._task.environment, "compiler": job.compiler}
        measurement = Measurement(
            verdict.outcome, verdict.message, timing, verdict.verification, job.resources, job.build_seconds,
            seconds, environment,
        )  # fmt: skip
        self._finished.append(Finished(job.source.candidate, job.source.hash, measurement))

    def _fallback(self, job: _Job) -> Timing:
        """An estimate where nothing could be counted."""
        task, plan, spec = self._task, job.source.plan, self._task.identity.spec
        tensor_cores = any("mma" in include.name for include in job.source.includes)
        template = task.templates[job.source.candidate.template]
        flops = template.executed_flops(task.op.flops(task.problem), task.problem)
        return estimate(flops, task.op.nbytes(task.problem), plan, job.resources, spec, tensor_cores=tensor_cores)

    def _fail(self, error: AutotuneError) -> None:
        def raise_it() -> None:
            raise error

        self._events.put(raise_it)


def _shared(run: _Run, verdict: Verdict) -> Verdict:
    return replace(verdict, message=verdict.message or f"same binary and launches as {run.first}")
