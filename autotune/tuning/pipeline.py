"""The real evaluator: render, static checks, builds on all cores, then the worker that owns the device.

On a GPU one binary is built and run. On the emulator two: a cubin for the target GPU, for its resources and the
estimate, and the emulated one, which is executed and verified on the op's reduced problem. Once some candidate is known
to be right, others are estimated first: as on a GPU, what is far slower is given up before it is verified.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, Queue
from typing import Any, TypeVar

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.compilers.machine_code import machine_code
from autotune.compilers.nvcc import CubinRequest
from autotune.compilers.pool import BuildPool, BuildRequest
from autotune.core.candidate import Candidate
from autotune.core.errors import CompileError, FaultFound, LaunchError
from autotune.core.measurement import Energy, Measurement, Timing, Wrong
from autotune.core.model_version import UNCOUNTED_DRIVER
from autotune.core.outcome import DOUBTFUL, Outcome
from autotune.core.plan import LaunchPlan
from autotune.core.threads import start_thread
from autotune.core.words import format_ms
from autotune.devices.client import WorkerClient
from autotune.devices.measure import Verdict
from autotune.devices.messages import Prepare
from autotune.emulator.building import EmulatorRequest
from autotune.estimate.occupancy import kernel_resources, static_failure
from autotune.families.source import SOURCE_NAME
from autotune.families.template_lines import template_lines
from autotune.tuning.counter import Counter
from autotune.tuning.evaluation import Job, Task
from autotune.tuning.evaluator import RETIME_ROUNDS, Finished, Load, Order
from autotune.tuning.lane import GIVE_UP_FACTOR, Judged, Lane, Programs
from autotune.tuning.objective import PLAIN, Demand
from autotune.tuning.room import Spent, enough_under_way, enough_waiting
from autotune.tuning.timeline import Timeline

Result = TypeVar("Result")


@dataclass
class _Run:
    """A binary with its launches on the device, or back from it; candidates that share it share the verdict."""

    first: Job
    judged: "Future[Judged]"
    shared: bool = False

    @property
    def spent(self) -> bool:
        """Whether it ended as another run of it need not, or was forgotten."""
        if self.judged.cancelled():
            return True
        done = self.judged.done() and self.judged.exception() is None
        return done and self.judged.result()[0].outcome in DOUBTFUL


class Pipeline:
    """Candidates under way, each in a thread of its own, which waits for builds and for the device."""

    def __init__(
        self, task: Task, client: WorkerClient, cache: BuildCache, jobs: int | None, timeline: Timeline | None = None,
        demand: Demand = PLAIN,
    ) -> None:  # fmt: skip
        self._task = task
        self._demand = demand
        self._timeline = timeline or Timeline(time.monotonic())
        self._cache = cache
        self._pool = BuildPool(cache, jobs)
        self._counter = Counter()
        self._results: Queue[Finished | Exception] = Queue()
        self._failure: Exception | None = None
        self._threads: set[threading.Thread] = set()
        self._submitted: set[Candidate] = set()
        self._expected: dict[Candidate, Future[Artifact]] = {}
        self._lock = threading.Lock()  # guards the next six
        self._dropped = False
        self._building: dict[Future[Any], float] = {}  # when each build was submitted
        self._build_seconds = 0.0
        self._built_candidates = 0
        self._judged_candidates = 0
        self._runs: dict[tuple[str, LaunchPlan], _Run] = {}
        self._limit_ms: float | None = None  # slower candidates are given up
        prepare = Prepare(task.op_source, task.executed, task.seed)
        self._lane = Lane(
            client, prepare, task.patience_s, timed=not task.emulated, failed=self._results.put,
            timeline=self._timeline, demand=demand,
        )  # fmt: skip

    @property
    def capacity(self) -> int:
        """As many as keep the device busy: what is asked later is asked knowing more."""
        with self._lock:
            return enough_under_way(self._pool.jobs, *self._spent())

    def _spent(self) -> tuple[Spent, Spent]:
        """On builds and on the device."""
        building = Spent(self._build_seconds, self._built_candidates)
        return building, Spent(self._lane.busy_seconds, self._judged_candidates)

    def _left(self) -> list[float]:
        """Seconds that each build under way is likely to take yet; those that wait for a core as if they began now."""
        usual, now = Spent(self._build_seconds, self._built_candidates).each, time.monotonic()
        running = list(self._building.values())[: self._pool.jobs]
        waiting = len(self._building) - len(running)
        return [max(0.0, begun + usual - now) for begun in running] + [usual] * waiting

    def submit(self, candidate: Candidate) -> None:
        """Render and begin to build.

        Raises:
            TemplateError: the template itself is wrong, which no other candidate would change.
            AutotuneError: no more threads can be started.
        """
        job = Job(self._task.render(candidate, self._task.problem), again=candidate in self._submitted)
        self._submitted.add(candidate)
        self._timeline.mark("building")
        begun = self._expected.pop(candidate, None)
        cubin = self._follow_build(begun or self._pool.submit(CubinRequest(job.source, self._task.identity.spec.arch)))
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        self._threads.add(start_thread(f"candidate {candidate}", lambda: self._follow(job, cubin)))

    def expect(self, candidate: Candidate) -> None:
        """Begin to build a candidate that is likely to be submitted.

        Raises:
            TemplateError: as `submit`.
        """
        request = CubinRequest(self._task.render(candidate, self._task.problem), self._task.identity.spec.arch)
        self._timeline.mark("building")
        self._expected[candidate] = self._pool.submit(request)

    def poll(self, timeout_s: float) -> Sequence[Finished]:
        """Candidates that have finished; waits for the first. An error is raised once all before it have been given."""
        finished: list[Finished] = []
        with suppress(Empty):
            while self._failure is None:
                result = self._results.get(timeout=0.0 if finished else timeout_s)
                if isinstance(result, Exception):
                    self._failure = result
                else:
                    finished.append(result)
        if self._failure is not None and not finished:
            raise self._failure
        return finished

    def reconsider(self, order: Order) -> Sequence[Candidate]:
        """What waits for the device, the most promising first; what is more than it needs is forgotten."""
        ready = self._lane.queue()
        ordered = order(ready) if len(ready) > 1 else None
        if ordered is None:
            return []
        self._lane.prefer(ordered)
        with self._lock:
            kept = enough_waiting(*self._spent(), self._left())
            alone = {run.first.source.candidate for run in self._runs.values() if not run.shared}
            surplus = () if kept is None else ordered[kept:]
            gone = [candidate for candidate in surplus if candidate in alone and self._lane.forget(candidate)]
            self._built_candidates += len(gone)
        self._submitted.difference_update(gone)
        return gone

    def note_best(self, ms: float) -> None:
        """Lets candidates that are much slower be given up early."""
        self._limit_ms = GIVE_UP_FACTOR * self._demand.objective.slack * ms
        self._lane.note_best(ms)

    def note_energy(self, ms: float, energy: Energy) -> None:
        """Lets candidates that cannot win be spared the measurement."""
        self._lane.note_energy(ms, energy)

    def load(self) -> Load:
        """Builds running or queued, candidates waiting for the device, seconds spent on both."""
        unfinished = len(self._building)
        building = min(unfinished, self._pool.jobs)
        queued = unfinished - building
        return Load(building, self._lane.waiting, self._build_seconds, self._lane.busy_seconds, queued)

    def retime(self, candidates: Sequence[Candidate]) -> Sequence[Timing | Wrong | None]:
        """Build again what the cache has lost, then time all in turn. Ends the pipeline's own work."""
        return self._lane.retime(self._programs(candidates), RETIME_ROUNDS)

    def meter(self, candidates: Sequence[Candidate], rounds: int) -> Sequence[Energy | None]:
        """Likewise measure their energies."""
        return self._lane.meter(self._programs(candidates), rounds)

    def _programs(self, candidates: Sequence[Candidate]) -> Programs:
        programs = []
        for candidate in candidates:
            source = self._task.render(candidate, self._task.problem)
            request = CubinRequest(source, self._task.identity.spec.arch)
            programs.append((request.build(self._cache), source.plan))
        return tuple(programs)

    def drop(self) -> None:
        """Stop all builds and forget what waits."""
        self._stop_builds()
        self._lane.drop()
        self._join()

    def close(self) -> None:
        """Stop builds and worker."""
        self._stop_builds()
        self._lane.close()
        self._join()

    def _stop_builds(self) -> None:
        with self._lock:
            self._dropped = True
        self._counter.stop()
        self._pool.close()
        self._give_back_expected()
        self._counter.close()

    def _give_back_expected(self) -> None:
        expected, self._expected = self._expected, {}
        for build in expected.values():  # all have ended or are cancelled
            if not build.cancelled() and build.exception() is None:
                self._cache.give_back(build.result())

    def _join(self) -> None:
        for thread in self._threads:  # what they waited for has ended or is cancelled
            thread.join()

    # --- a candidate's way, in its thread

    def _follow(self, job: Job, cubin: "Future[Artifact]") -> None:
        try:
            measurement = self._evaluate(job, cubin)
            with self._lock:
                self._built_candidates += 1
                self._judged_candidates += measurement.device_seconds > 0.0
            if job.behind is not None:
                job.behind.done.wait()
            self._results.put(Finished(job.source.candidate, job.source.hash, measurement))
        except CancelledError:
            pass  # nobody waits for it
        except Exception as error:  # noqa: BLE001 - raised where results are asked for
            if not self._dropped:  # else it is the end of builds that broke it
                self._results.put(error)
        finally:
            job.done.set()
            for artifact in job.artifacts:
                self._cache.give_back(artifact)

    def _evaluate(self, job: Job, building: "Future[Artifact]") -> Measurement:
        """What becomes of a candidate whose cubin is being built.

        Raises:
            CancelledError: it was dropped.
            AutotuneError: the machinery failed, which is no candidate's fault.
        """
        try:
            return self._evaluate_built(job, building)
        except FaultFound as error:
            return self._measurement(job, Verdict(Outcome.WRONG_RESULT, str(error), None, job.verification))
        except CompileError as error:
            return self._measurement(job, Verdict(Outcome.COMPILE_ERROR, str(error)))

    def _evaluate_built(self, job: Job, building: "Future[Artifact]") -> Measurement:
        task, spec, plan = self._task, self._task.identity.spec, job.source.plan
        cubin = self._built(job, building)
        job.compiler, job.cubin = cubin.compiler, cubin.path
        failure = static_failure(plan, cubin, spec)
        if failure is not None:
            return self._measurement(job, Verdict(Outcome.INFEASIBLE, failure))
        job.resources = kernel_resources(plan, cubin, spec)
        job.machine_code = machine_code(cubin.path, plan, task.op.version)
        if not task.emulated:
            verdict, seconds = self._judge(job, cubin, plan)
            return self._measurement(job, verdict, seconds, verdict.timing)
        why = "" if job.again else self._why_far_behind(job)  # it crashed: first it must be seen not to
        if why:
            return self._measurement(job, Verdict(Outcome.PRUNED, f"given up, unverified: {why}"), 0.0, job.timing)
        source = task.render(job.source.candidate, task.executed)
        emulated = self._built(job, self._build(EmulatorRequest(source)))
        verdict, seconds = self._judge(job, emulated, source.plan)
        if verdict.outcome is not Outcome.OK:
            return self._measurement(job, verdict, seconds, verdict.timing)
        job.verification = verdict.verification
        if job.fault is not None:
            raise job.fault
        if job.timing is None:
            self._estimate(job)
        said = "; ".join(filter(None, (verdict.message, job.uncounted)))
        return self._measurement(job, replace(verdict, message=said), seconds, job.timing)

    def _why_far_behind(self, job: Job) -> str:
        """Why a candidate need not be executed; empty as long as nothing is right, or where it cannot be counted."""
        if self._limit_ms is None:
            return ""
        least, limit = self._task.least_ms(job), self._limit_ms
        if least > limit:
            job.timing = self._task.fallback(job)
            return f"its operations alone take {format_ms(least)} ms in fp32, slower than {format_ms(limit)} ms"
        try:
            timing, limit = self._estimate(job), self._limit_ms  # which may be less by now
        except FaultFound as error:  # wrong numbers say more than a race: it is executed first
            job.fault = error
            return ""
        if timing.counted and timing.median_ms > limit:
            return f"estimated at {format_ms(timing.median_ms)} ms, slower than {format_ms(limit)} ms"
        return ""

    def _estimate(self, job: Job) -> Timing:
        """The modelled time, from then on the job's; where its work cannot be counted one that says so.

        Raises:
            FaultFound: the traced run showed something wrong.
        """
        request = self._task.estimate_request(job, self._counter)
        try:
            if request is None:
                raise LaunchError("no other process can resolve the op")
            job.timing = self._build(request).result().timing
        except (LaunchError, CompileError) as error:
            job.timing = self._task.fallback(job)
            why, _, _ = str(error).partition("\n")
            job.uncounted = f"not counted, so ranked behind all that are: {why}"
        return job.timing

    def _judge(self, job: Job, artifact: Artifact, plan: LaunchPlan) -> Judged:
        """The device's verdict; of one binary that is launched in one way it is asked once, and again if in doubt."""
        with self._lock:
            if self._dropped:  # what was still being built must not get before the finalists
                raise CancelledError
            run = self._runs.get((artifact.binary_hash, plan))
            if run is None or run.spent:
                judged = self._lane.put(artifact, plan, job.source.candidate)
                run = self._runs[artifact.binary_hash, plan] = _Run(job, judged)
            else:
                run.shared = True
        verdict, seconds = run.judged.result()
        if run.first is job:
            return verdict, seconds
        job.behind = run.first
        shared = verdict.message or f"same binary and launches as {run.first.source.candidate}"
        return replace(verdict, message=shared), 0.0

    def _build(self, request: BuildRequest[Result]) -> "Future[Result]":
        return self._follow_build(self._pool.submit(request))

    def _follow_build(self, future: "Future[Result]") -> "Future[Result]":
        with self._lock:
            self._building[future] = time.monotonic()
        future.add_done_callback(self._end_build)
        return future

    def _end_build(self, future: "Future[Any]") -> None:
        with self._lock:
            del self._building[future]

    def _built(self, job: Job, building: "Future[Artifact]") -> Artifact:
        artifact = building.result()
        self._timeline.mark("built")
        job.artifacts.append(artifact)
        job.build_seconds += artifact.seconds
        with self._lock:
            self._build_seconds += 0.0 if artifact.cached else artifact.seconds
        return artifact

    def _in_template(self, job: Job, said: str) -> str:
        """What a compiler or the emulator says, in the template's lines."""
        if SOURCE_NAME not in said:
            return said
        template = self._task.templates[job.source.candidate.template]
        return template_lines(template, job.source, self._task.identity.spec).translated(said)

    def _measurement(
        self, job: Job, verdict: Verdict, seconds: float = 0.0, timing: Timing | None = None
    ) -> Measurement:
        environment = {**self._task.environment, "compiler": job.compiler}
        if timing is not None and not timing.counted:
            environment["driver"] = UNCOUNTED_DRIVER
        return Measurement(
            verdict.outcome, self._in_template(job, verdict.message), timing, verdict.verification, job.resources,
            job.build_seconds, seconds, environment, job.machine_code, energy=verdict.energy,
        )  # fmt: skip
