"""The thread that keeps the device busy: takes built candidates, has the worker judge them, hands back verdicts."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autotune.compilers.artifact import Artifact
from autotune.core.candidate import Candidate
from autotune.core.errors import AutotuneError
from autotune.core.measurement import Energy, Timing, Wrong
from autotune.core.outcome import Outcome
from autotune.core.plan import LaunchPlan
from autotune.core.threads import start_thread
from autotune.devices.client import WorkerClient, WorkerDied, WorkerTimeout
from autotune.devices.measure import Verdict
from autotune.devices.messages import Evaluate, Evaluated, Meter, Metering, Prepare, Retime, Retimed
from autotune.devices.protocol import TimingBudget
from autotune.tuning.objective import PLAIN, Demand, Metered
from autotune.tuning.timeline import Timeline

GIVE_UP_FACTOR = 1.5
"""A candidate whose fastest repeat is this much slower than the best so far is not timed to the end."""

_AROUND_S = 5.0
"""What a measurement of energy takes besides: until the load is steady, until the gauge moves, idle."""
TRIAL_ERROR = 0.0035
"""Standard error of a trial's median that is small enough: the fastest are timed once more, all in one run."""

Programs = tuple[tuple[Artifact, LaunchPlan], ...]
Found = TypeVar("Found")
Judged = tuple[Verdict, float]
"""A verdict, and the seconds that it took the device."""


@dataclass(frozen=True)
class _Step:
    """What to do, how to forget it, and for which candidate it is."""

    do: Callable[[], None]
    forget: Callable[[], bool]
    candidate: Candidate | None = None


class Lane:
    """Feeds one worker from a queue, in order of arrival unless another is preferred.

    Args:
        client: the worker; used by this lane's thread alone from now on.
        prepare: the problem, made ready before the first candidate.
        limit_s: seconds a candidate may take.
        timed: whether candidates are timed on the device, or only verified.
        demand: what is wanted of candidates beside being right: their energies are measured where they may win by them.
        failed: called (in the lane's thread) with an error that is no candidate's fault; the lane then stops.
        timeline: told when the device is open, the references are made and the first verdict is there.
    """

    def __init__(
        self, client: WorkerClient, prepare: Prepare, limit_s: float, *, timed: bool,
        failed: Callable[[Exception], None], timeline: Timeline, demand: Demand = PLAIN,
    ) -> None:  # fmt: skip
        self._timeline = timeline
        self._client, self._prepare, self._limit_s, self._timed, self._failed = client, prepare, limit_s, timed, failed
        self._demand, self._metered = demand, Metered(demand.objective)
        self._steps: list[_Step] = []
        self._changed = threading.Condition()  # a step is queued before the end or not at all
        self._over = self._closing = False
        self._idle = threading.Event()
        self._best_ms: float | None = None
        self.busy_seconds = 0.0
        self._thread = start_thread("device", self._run)

    @property
    def waiting(self) -> int:
        """Candidates that are built and not yet on the device."""
        return len(self._steps)

    def queue(self) -> list[Candidate]:
        """The same, the next one first."""
        with self._changed:
            return [step.candidate for step in self._steps if step.candidate is not None]

    def put(self, artifact: Artifact, plan: LaunchPlan, candidate: Candidate) -> "Future[Judged]":
        """Queue a candidate. The future is cancelled where it is forgotten before the device has it."""
        judged: Future[Judged] = Future()
        self._queue(judged, lambda: judged.set_result(self._evaluate(artifact, plan)), candidate)
        return judged

    def prefer(self, ordered: Sequence[Candidate]) -> None:
        """Have these candidates judged in this order, what is not among them afterwards."""
        places = {candidate: place for place, candidate in enumerate(ordered)}
        with self._changed:
            self._steps.sort(key=lambda s: len(places) if s.candidate is None else places.get(s.candidate, len(places)))

    def forget(self, candidate: Candidate) -> bool:
        """Take a candidate out of the queue; False where the device has it already."""
        with self._changed:
            found = next((step for step in self._steps if step.candidate == candidate), None)
            if found is None:
                return False
            self._steps.remove(found)
        return found.forget()

    def note_best(self, ms: float) -> None:
        """The best time known: later candidates are given up when they are clearly slower."""
        self._best_ms = ms if self._best_ms is None else min(ms, self._best_ms)

    def note_energy(self, ms: float, energy: Energy) -> None:
        """The figures of a candidate whose energy is known."""
        self._metered.note(ms, energy)

    def retime(self, programs: Programs, rounds: int) -> tuple[Timing | Wrong | None, ...]:
        """Time verified candidates interleaved, after what is queued; waits for the result.

        A worker that dies over it answers with no times at all.
        """
        return self._waited(lambda: self._retime(programs, rounds), len(programs))

    def meter(self, programs: Programs, rounds: int) -> tuple[Energy | None, ...]:
        """Measure the energy of verified candidates interleaved; as `retime`."""
        return self._waited(lambda: self._meter(programs, rounds), len(programs))

    def _waited(self, do: Callable[[], tuple[Found | None, ...]], count: int) -> tuple[Found | None, ...]:
        found: Future[tuple[Found | None, ...]] = Future()
        self._queue(found, lambda: found.set_result(do()))
        try:
            return found.result()
        except CancelledError:
            return (None,) * count

    def drop(self) -> None:
        """Forget the queue; a candidate that is on the device and does not end at once is killed."""
        self._forget()
        if not self._idle.wait(self._client.patience_s):
            self._client.kill()

    def close(self) -> None:
        """Stop at once: kill the worker, forget the queue."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._client.kill(for_good=True)
        self._thread.join()
        self._client.close()

    def _queue(self, future: "Future[Any]", step: Callable[[], None], candidate: Candidate | None = None) -> None:
        with self._changed:
            if self._over:
                future.cancel()
            else:
                self._steps.append(_Step(step, future.cancel, candidate))
                self._changed.notify()

    def _forget(self) -> None:
        with self._changed:
            steps, self._steps = self._steps, []
        for step in steps:
            step.forget()

    def _next(self) -> _Step | None:
        """Waits for a step; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._steps or self._closing)
            if self._closing:
                return None
            self._idle.clear()
            return self._steps.pop(0)

    def _run(self) -> None:
        forget: Callable[[], bool] | None = None
        try:
            self._begin()
            while not self._closing:
                self._idle.set()
                step = self._next()
                if step is None:
                    break
                forget = step.forget
                step.do()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody must wait for this thread any more
            if not self._closing or not isinstance(error, AutotuneError):
                self._failed(error)
        finally:
            with self._changed:
                self._over = True
            if forget is not None:
                forget()  # nothing happens where it was done
            self._forget()
            self._idle.set()

    def _begin(self) -> None:
        try:
            self._make_ready()
        except WorkerDied:  # by no kernel: none has run yet
            self._make_ready()

    def _make_ready(self) -> None:
        self._client.start(self._prepare)
        self._timeline.mark("device")
        self._client.prepare(self._prepare)
        self._timeline.mark("references")

    def _evaluate(self, artifact: Artifact, plan: LaunchPlan) -> Judged:
        start = time.monotonic()
        verdict = self._judge(artifact, plan)
        seconds = time.monotonic() - start
        self._timeline.mark("verdict")
        if (
            verdict.outcome is Outcome.OK
            and verdict.timing is not None
            and not self._demand.complaint(verdict.verification)
        ):
            self.note_best(verdict.timing.median_ms)  # the next candidate may begin before anyone else says so
            verdict = self._with_energy(verdict, artifact, plan)
            seconds = time.monotonic() - start
        self.busy_seconds += seconds
        return verdict, seconds

    def _with_energy(self, verdict: Verdict, artifact: Artifact, plan: LaunchPlan) -> Verdict:
        """With the energy of a candidate that may win by it."""
        assert verdict.timing is not None
        ms = verdict.timing.median_ms
        if not self._metered.worth(ms):
            return verdict
        (energy,) = self._meter(((artifact, plan),), 1)
        if energy is not None:
            self._metered.note(ms, energy)
        return replace(verdict, energy=energy)

    def _judge(self, artifact: Artifact, plan: LaunchPlan) -> Verdict:
        try:
            reply = self._client.ask(Evaluate(artifact, plan, self._budget()), self._limit_s)
        except WorkerTimeout as error:
            return Verdict(Outcome.TIMEOUT, str(error))
        except WorkerDied as error:
            return Verdict(Outcome.CRASH, str(error))
        assert isinstance(reply, Evaluated)
        if reply.poisoned:
            self._client.stop()
        return reply.verdict

    def _retime(self, programs: Programs, rounds: int) -> tuple[Timing | Wrong | None, ...]:
        try:
            reply = self._client.ask(Retime(programs, rounds), self._limit_s * max(1, len(programs)))
        except (WorkerTimeout, WorkerDied):
            return (None,) * len(programs)
        assert isinstance(reply, Retimed)
        return reply.timings

    def _meter(self, programs: Programs, rounds: int) -> tuple[Energy | None, ...]:
        seconds = self._demand.energy_s
        limit_s = self._limit_s + rounds * len(programs) * (seconds + _AROUND_S)
        try:
            reply = self._client.ask(Meter(programs, rounds, seconds), limit_s)
        except (WorkerTimeout, WorkerDied):
            return (None,) * len(programs)
        assert isinstance(reply, Metering)
        return reply.energies

    def _budget(self) -> TimingBudget | None:
        if not self._timed:
            return None
        best = self._best_ms
        limit = None if best is None else GIVE_UP_FACTOR * self._demand.objective.slack * best
        return TimingBudget(relative_error=TRIAL_ERROR, give_up_above_ms=limit)
