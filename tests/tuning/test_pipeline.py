"""Candidates under way: who is fed when, who shares a run, and that nobody waits for what will never come."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from autotune.compilers.artifact import Artifact
from autotune.compilers.cache import BuildCache
from autotune.core.candidate import Candidate, make_candidate
from autotune.core.errors import AutotuneError, BuildError, CompileError
from autotune.core.outcome import Outcome
from autotune.devices.client import WorkerClient, WorkerDied, WorkerTimeout
from autotune.devices.measure import Verdict
from autotune.devices.messages import Evaluate, Evaluated, Message, Prepare, Reply
from autotune.families.source import KernelSource
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from autotune.ops.registry import get_op
from autotune.tuning import pipeline as module
from autotune.tuning.evaluation import Task
from autotune.tuning.evaluator import Finished
from autotune.tuning.pipeline import Pipeline
from autotune.tuning.room import KEPT
from tests.search_doubles import PROBLEM, VERIFIED
from tests.sources import kernel_source


def candidate(name: str) -> Candidate:
    return make_candidate("fam", "hash", {"X": name})


@dataclass
class Worker:
    """A worker whose answers come when the test says so."""

    patience_s: float = 0.05
    failure: Exception | None = None  # of `prepare`
    dies: list[Exception] = field(default_factory=list)  # of `prepare` and `ask`, one a call
    asked: list[str] = field(default_factory=list)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    answers: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    killed: threading.Event = field(default_factory=threading.Event)
    says: Callable[[str], Verdict] = lambda binary: Verdict(Outcome.OK, verification=VERIFIED)

    def start(self, ahead: Prepare) -> None:
        pass

    def prepare(self, message: Prepare) -> None:
        if self.dies:
            raise self.dies.pop()
        if self.failure is not None:
            raise self.failure

    def ask(self, message: Message, limit_s: float) -> Reply:
        assert isinstance(message, Evaluate)
        self.asked.append(message.artifact.binary_hash)
        self.begun.release()
        while not self.answers.acquire(timeout=0.01):
            if self.killed.is_set():
                raise WorkerDied("killed")
        if self.dies:
            raise self.dies.pop()
        return Evaluated(self.says(message.artifact.binary_hash), 0.0, poisoned=False)

    def kill(self, *, for_good: bool = False) -> None:
        self.killed.set()

    def stop(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Request:
    """A build that takes as long as the test wants; the binary is the name's part before the colon."""

    source: KernelSource
    arch: str = ""

    def build(self, cache: BuildCache) -> Artifact:
        name = str(self.source.candidate.config["X"])
        GATES[name].wait()
        if name == "refused":
            raise CompileError("no")
        if name == "broken":
            raise BuildError("the disk is full")
        return Artifact("cubin", Path("none"), Path("none"), name, name[0], (), "cc 1", 0.5, cached=False)


GATES: dict[str, threading.Event] = {}


def open_gates() -> None:
    for gate in GATES.values():
        gate.set()


@dataclass(frozen=True)
class Rendered(Task):
    def render(self, candidate: Candidate, problem: Any) -> KernelSource:
        return replace(kernel_source(f"// {candidate}\n"), candidate=candidate)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def pipeline(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setattr(module, "CubinRequest", Request)
    monkeypatch.setattr(module, "machine_code", lambda path, plan, reference: "code")
    GATES.clear()
    unused = cast(Any, None)
    task = Rendered(
        get_op(PROBLEM.op), unused, PROBLEM, {}, DeviceIdentity("cuda", gpu("h200")), {"driver": "1"}, 0, 20.0
    )
    made = Pipeline(task, cast(WorkerClient, worker), BuildCache(tmp_path), 2)
    yield made
    open_gates()
    made.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("candidate", "device", "build"))]


def submit(pipeline: Pipeline, *names: str, ready: bool = True) -> None:
    for name in names:
        GATES[name] = threading.Event()
        if ready:
            GATES[name].set()
        pipeline.submit(candidate(name))


def finished(pipeline: Pipeline, count: int) -> list[Finished]:
    found: list[Finished] = []
    while len(found) < count:
        found += pipeline.poll(60.0)
    return found


def names(found: list[Finished]) -> list[str]:
    return [str(one.candidate.config["X"]) for one in found]


def test_the_device_is_fed_in_order_of_arrival(pipeline: Pipeline, worker: Worker) -> None:
    submit(pipeline, "a", "b", ready=False)
    for name in "ba":  # the second is built first
        GATES[name].set()
        while name not in [*worker.asked, *["a"] * pipeline.load().waiting]:
            time.sleep(0.01)
    assert worker.asked == ["b"]
    for name in "ba":
        worker.answers.release()
        assert names(finished(pipeline, 1)) == [name]
    assert worker.asked == ["b", "a"]


def test_what_was_expected_is_built_once_and_before_it_is_submitted(pipeline: Pipeline, worker: Worker) -> None:
    for name in "ab":
        GATES[name] = threading.Event()
        pipeline.expect(candidate(name))
    GATES["a"].set()
    while not pipeline._expected[candidate("a")].done():
        time.sleep(0.001)
    del GATES["a"]  # a second build would miss it
    pipeline.submit(candidate("a"))
    worker.answers.release()
    assert names(finished(pipeline, 1)) == ["a"]
    assert {"building", "built", "verdict"} < set(pipeline._timeline.seconds())
    assert pipeline.load().building == 0  # what is only expected does not count


def test_one_binary_is_run_once_and_its_first_candidate_is_recorded_first(pipeline: Pipeline, worker: Worker) -> None:
    submit(pipeline, "a")
    assert worker.begun.acquire(timeout=60)
    submit(pipeline, "a2", "a3")
    assert pipeline.poll(0.0) == []
    worker.answers.release()
    found = finished(pipeline, 3)
    assert names(found)[0] == "a"
    submit(pipeline, "a4")  # long after
    found += finished(pipeline, 1)
    assert worker.asked == ["a"]
    messages = {str(one.candidate.config["X"]): one.measurement.message for one in found}
    assert messages == {"a": "", **dict.fromkeys(("a2", "a3", "a4"), "same binary and launches as fam X=a")}
    assert [one.measurement.verification for one in found] == [VERIFIED] * 4
    assert [one.measurement.build_seconds for one in found] == [0.5] * 4
    assert pipeline.load().build_seconds == 2.0


def test_a_worker_killed_before_anything_ran_is_replaced(
    worker: Worker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    worker.dies = [WorkerDied("killed by SIGKILL")]
    pipeline: Pipeline = request.getfixturevalue("pipeline")
    worker.answers.release()
    submit(pipeline, "a")
    assert finished(pipeline, 1)[0].measurement.outcome is Outcome.OK
    assert worker.dies == []


@pytest.mark.parametrize("error", [WorkerDied("killed by SIGKILL"), WorkerTimeout("no result within 20 s")])
def test_a_binary_whose_run_is_in_doubt_is_run_again(pipeline: Pipeline, worker: Worker, error: Exception) -> None:
    submit(pipeline, "a")
    assert worker.begun.acquire(timeout=60)
    worker.dies = [error]
    for _ in range(2):
        worker.answers.release()
    [first] = finished(pipeline, 1)
    assert (first.measurement.outcome, first.measurement.doubtful) == (
        Outcome.CRASH if isinstance(error, WorkerDied) else Outcome.TIMEOUT, True,
    )  # fmt: skip
    submit(pipeline, "a")  # as at the end of a search
    [second] = finished(pipeline, 1)
    assert second.measurement.outcome is Outcome.OK
    assert worker.asked == ["a", "a"]


def test_what_fails_is_told_of_the_candidate_or_of_the_machine(pipeline: Pipeline, worker: Worker) -> None:
    worker.answers.release()
    submit(pipeline, "refused")
    [refused] = finished(pipeline, 1)
    assert (refused.measurement.outcome, refused.measurement.message) == (Outcome.COMPILE_ERROR, "no")
    submit(pipeline, "a")
    [right] = finished(pipeline, 1)
    assert right.measurement.outcome is Outcome.OK
    submit(pipeline, "broken")
    for _ in range(2):  # for as long as somebody asks
        with pytest.raises(BuildError, match="the disk is full"):
            pipeline.poll(60.0)


def test_what_finished_before_an_error_is_given_first(pipeline: Pipeline, worker: Worker) -> None:
    worker.answers.release()
    submit(pipeline, "a")
    for thread in list(pipeline._threads):
        thread.join()
    submit(pipeline, "broken")
    for thread in list(pipeline._threads):
        thread.join()
    assert names(list(pipeline.poll(0.0))) == ["a"]
    with pytest.raises(BuildError, match="the disk is full"):
        pipeline.poll(0.0)


def test_dropping_forgets_whoever_builds_waits_or_runs(pipeline: Pipeline, worker: Worker) -> None:
    submit(pipeline, "a", "a2")  # on the device, and sharing its run
    assert worker.begun.acquire(timeout=60)
    submit(pipeline, "b")  # waiting for the device
    while pipeline.load().waiting < 1:
        time.sleep(0.01)
    submit(pipeline, "c", "d", "e", ready=False)  # building and waiting for it
    load = pipeline.load()
    assert (load.building, load.queued) == (2, 1)  # there are two compilers
    end = threading.Timer(0.1, open_gates)
    end.start()
    pipeline.drop()
    end.join()
    assert worker.killed.is_set()
    assert worker.asked == ["a"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("candidate")]
    assert pipeline.retime([]) == ()


def test_a_problem_that_cannot_be_prepared_ends_the_search(
    worker: Worker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    worker.failure = AutotuneError("too large for this machine")
    pipeline: Pipeline = request.getfixturevalue("pipeline")
    submit(pipeline, "a", "b")
    with pytest.raises(AutotuneError, match="too large for this machine"):
        pipeline.poll(60.0)
    assert pipeline.retime([]) == ()  # does not wait for a device that is gone


def test_a_bug_on_the_way_is_raised_and_not_waited_for(pipeline: Pipeline, worker: Worker) -> None:
    def bug(binary: str) -> Verdict:
        raise ZeroDivisionError

    worker.says = bug
    worker.answers.release()
    submit(pipeline, "a")
    with pytest.raises(ZeroDivisionError):
        pipeline.poll(60.0)


def test_a_thread_that_cannot_start_is_said(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(AutotuneError, match=r"can't start new thread: allow more processes and threads \(ulimit -u\)"):
        submit(pipeline, "a")


def by_name(ready: Sequence[Candidate]) -> list[Candidate]:
    return sorted(ready, key=lambda candidate: str(candidate.config["X"]))


def wait_for_the_device(pipeline: Pipeline, worker: Worker, *built: str, waiting: int) -> None:
    """Until one candidate is on the device, and so many others wait for it."""
    submit(pipeline, "z")
    assert worker.begun.acquire(timeout=60)
    submit(pipeline, *built)
    while pipeline.load().waiting < waiting:
        time.sleep(0.001)


def test_the_most_promising_of_what_is_built_is_measured_first_and_the_rest_dropped(
    pipeline: Pipeline, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "enough_waiting", lambda building, device, left: KEPT)
    built = "fedcba"[: KEPT + 2]
    wait_for_the_device(pipeline, worker, *built, waiting=len(built))
    assert pipeline.reconsider(lambda ready: None) == []
    gone = pipeline.reconsider(by_name)
    assert [candidate.config["X"] for candidate in gone] == ["e", "f"]
    for _ in range(2 + KEPT):
        worker.answers.release()
    found = finished(pipeline, 1 + KEPT)
    assert worker.asked == ["z", *"abcd"]
    assert sorted(names(found)) == sorted(worker.asked)
    submit(pipeline, "f")  # wanted after all
    assert names(finished(pipeline, 1)) == ["f"]


def test_what_is_built_soon_is_not_kept_in_stock(
    pipeline: Pipeline, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two that have a core are half built, the others have not begun: so it is told to whom it concerns."""
    told: list[Sequence[float]] = []
    monkeypatch.setattr(module, "enough_waiting", lambda building, device, left: told.append(left))
    wait_for_the_device(pipeline, worker, "a", "b", waiting=2)
    submit(pipeline, "c", "d", "e", "f", ready=False)
    pipeline._build_seconds, pipeline._built_candidates = 8e6, 2
    begun = time.monotonic()
    for build in pipeline._building:
        pipeline._building[build] = begun - 1e6
    assert pipeline.reconsider(by_name) == []
    [left] = told
    assert left == pytest.approx([3e6, 3e6, 4e6, 4e6], rel=1e-3)
    open_gates()
    for _ in range(7):
        worker.answers.release()
    assert len(finished(pipeline, 7)) == 7
    assert not pipeline._left()


def test_what_others_wait_for_is_not_dropped(
    pipeline: Pipeline, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "enough_waiting", lambda building, device, left: KEPT)
    wait_for_the_device(pipeline, worker, *"abcd"[:KEPT], "s1", waiting=KEPT + 1)
    submit(pipeline, "s2")  # the same binary
    while pipeline.load().building:
        time.sleep(0.001)
    time.sleep(0.05)  # its thread has met the first by then, or the next line is not put to the test
    assert pipeline.reconsider(by_name) == []
    for _ in range(2 + KEPT):
        worker.answers.release()
    assert len(finished(pipeline, 3 + KEPT)) == 3 + KEPT
