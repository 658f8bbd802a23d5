"""The real evaluator: render, static checks, builds on all cores, then the worker that owns the device.

On a GPU one binary is built and run. On the emulator two: a cubin for the target GPU, for its resources and the
estimate, and the emulated one, which is executed and verified on the op's reduced problem. Once some candidate is known
to be right, others are estimated first: as on a GPU, what is far slower is given up before it is verified.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, Queue

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError, BuildError, CompileError, LaunchError
from autotune.core.measurement import Measurement, Timing
from autotune.core.outcome import Outcome
from autotune.core.plan import LaunchPlan
from autotune.devices.client import WorkerClient
from autotune.devices.measure import Verdict
from autotune.devices.messages import Prepare
from autotune.estimate.model import METHOD, Estimate
from autotune.estimate.occupancy import kernel_resources, static_failure
from autotune.tuning.counter import Counter
from autotune.tuning.emulator_builds import EmulatorRequest
from autotune.tuning.evaluation import Job, Task
from autotune.tuning.evaluator import Finished, Load
from autotune.tuning.lane import GIVE_UP_FACTOR, Lane

RETIME_ROUNDS = 3


@dataclass
class _Run:
    """A binary with its launches on the device, or back from it; candidates that share it share the verdict."""

    first: Candidate
    verdict: Verdict | None = None
    waiting: list[Job] = field(default_factory=list)


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
        self._limit_ms: float | None = None  # slower candidates are given up
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
        job = Job(self._task.render(candidate, self._task.problem))
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
        """Lets candidates that are much slower be given up early."""
        self._limit_ms = GIVE_UP_FACTOR * ms
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

    def _build(self, request: CubinRequest | EmulatorRequest, job: Job, then: Callable[[Job, Artifact], None]) -> None:
        self._building += 1
        future: Future[Artifact] = self._pool.submit(request)
        future.add_done_callback(lambda done: self._events.put(partial(self._built, job, done, then)))

    def _built(self, job: Job, future: "Future[Artifact]", then: Callable[[Job, Artifact], None]) -> None:
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

    def _cubin_built(self, job: Job, artifact: Artifact) -> None:
        spec, plan = self._task.identity.spec, job.source.plan
        job.compiler = artifact.compiler
        failure = static_failure(plan, artifact, spec)
        if failure is not None:
            self._finish(job, Verdict(Outcome.INFEASIBLE, failure))
            return
        job.resources = kernel_resources(plan, artifact, spec)
        job.cubin = artifact.path
        if not self._task.emulated:
            self._queue(plan, job, artifact)
        elif self._limit_ms is None:
            self._emulate(job)
        elif (least := self._task.least_ms(job)) > self._limit_ms:
            job.timing = self._task.fallback(job)
            self._give_up(job, f"its operations alone take {least:.4g} ms in fp32")
        else:
            self._estimate(job, self._emulate_if_near)

    def _emulate_if_near(self, job: Job) -> None:
        """Build for the emulator, unless the estimate is far behind; one that counted nothing is no reason."""
        timing, limit = job.timing, self._limit_ms
        if timing is not None and timing.method == METHOD and limit is not None and timing.median_ms > limit:
            self._give_up(job, f"estimated at {timing.median_ms:.4g} ms")
        else:
            self._emulate(job)

    def _give_up(self, job: Job, why: str) -> None:
        message = f"given up, unverified: {why}, slower than {self._limit_ms:.4g} ms"
        self._record(job, Verdict(Outcome.PRUNED, message), 0.0, job.timing)

    def _emulate(self, job: Job) -> None:
        source = self._task.render(job.source.candidate, self._task.executed)
        self._build(EmulatorRequest(source), job, partial(self._queue, source.plan))

    def _queue(self, plan: LaunchPlan, job: Job, artifact: Artifact) -> None:
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

    def _judged(self, run: _Run, job: Job, verdict: Verdict, seconds: float) -> None:
        run.verdict = verdict
        self._finish(job, verdict, seconds)
        for other in run.waiting:
            self._finish(other, _shared(run, verdict))
        run.waiting.clear()

    def _finish(self, job: Job, verdict: Verdict, seconds: float = 0.0) -> None:
        """Record the verdict; on the emulator with an estimate of a correct candidate's time."""
        if not self._task.emulated or verdict.outcome is not Outcome.OK:
            self._record(job, verdict, seconds, verdict.timing)
        elif job.timing is None:
            self._estimate(job, lambda job: self._record(job, verdict, seconds, job.timing))
        else:
            self._record(job, verdict, seconds, job.timing)

    def _estimate(self, job: Job, then: Callable[[Job], None]) -> None:
        request = self._task.estimate_request(job, self._counter)
        if request is None:
            job.timing = self._task.fallback(job)
            then(job)
            return
        self._building += 1
        future = self._pool.submit(request)
        future.add_done_callback(lambda done: self._events.put(partial(self._estimated, job, done, then)))

    def _estimated(self, job: Job, future: "Future[Estimate]", then: Callable[[Job], None]) -> None:
        self._building -= 1
        try:
            job.timing = future.result().timing
        except CancelledError:
            return
        except (LaunchError, CompileError, BuildError):
            job.timing = self._task.fallback(job)  # labelled as such
        then(job)

    def _record(self, job: Job, verdict: Verdict, seconds: float, timing: Timing | None) -> None:
        environment = {**self._task.environment, "compiler": job.compiler}
        measurement = Measurement(
            verdict.outcome, verdict.message, timing, verdict.verification, job.resources, job.build_seconds,
            seconds, environment,
        )  # fmt: skip
        self._finished.append(Finished(job.source.candidate, job.source.hash, measurement))

    def _fail(self, error: AutotuneError) -> None:
        def raise_it() -> None:
            raise error

        self._events.put(raise_it)


def _shared(run: _Run, verdict: Verdict) -> Verdict:
    return replace(verdict, message=verdict.message or f"same binary and launches as {run.first}")
