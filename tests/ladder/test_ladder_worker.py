"""One worker for several searches: what it keeps, and what it does not survive."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from autotune.compilers.cache import BuildCache
from autotune.core.errors import AutotuneError
from autotune.core.outcome import Outcome
from autotune.core.problem import Problem
from autotune.devices.client import WorkerClient, WorkerDied
from autotune.devices.factory import CpuOpener
from autotune.devices.messages import Evaluate, Evaluated, Prepare
from autotune.emulator.building import build_emulator
from autotune.families.op_ref import OpRef
from autotune.families.render import render
from autotune.families.template import find_template
from autotune.ladder.shared_worker import SharedWorker
from autotune.ops.registry import get_op
from tests.kernels.attention_cases import SPEC

OP, FAMILY = get_op("permute"), find_template("permute", "copy")
ONE, OTHER = (OP.problem(B=1, NH=2, T=T, HS=8, dtype="fp32") for T in (9, 17))


@pytest.fixture
def worker() -> Iterator[SharedWorker]:
    made = SharedWorker(CpuOpener(SPEC, threads=1))
    made.start()
    yield made
    made.end()


def prepared(problem: Problem) -> Prepare:
    return Prepare(OpRef("permute"), problem, 0)


def outcome(worker: SharedWorker, problem: Problem) -> Outcome:
    source = render(FAMILY, problem, FAMILY.defaults, SPEC)
    reply = worker.ask(Evaluate(build_emulator(source, BuildCache()), source.plan, None), 60.0)
    assert isinstance(reply, Evaluated)
    return reply.verdict.outcome


def test_it_is_prepared_when_it_is_first_asked_and_once(worker: SharedWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Problem] = []
    prepare = WorkerClient.prepare

    def counted(client: WorkerClient, message: Prepare) -> None:
        made.append(message.problem)
        prepare(client, message)

    monkeypatch.setattr(WorkerClient, "prepare", counted)
    worker.prepare(prepared(OTHER))
    worker.prepare(prepared(ONE))
    assert made == []
    assert [outcome(worker, ONE), outcome(worker, ONE)] == [Outcome.OK, Outcome.OK]
    worker.kill(for_good=True)  # what the end of a search does
    worker.close()
    worker.prepare(prepared(ONE))
    assert outcome(worker, ONE) is Outcome.OK
    assert (made, worker.starts) == ([ONE], 1)
    worker.prepare(prepared(OTHER))
    assert outcome(worker, OTHER) is Outcome.OK
    assert (made, worker.starts) == ([ONE, OTHER], 1)


def test_one_that_another_thread_restarted_outlives_the_search_too(worker: SharedWorker) -> None:
    worker.prepare(prepared(ONE))
    assert outcome(worker, ONE) is Outcome.OK
    seen: list[Outcome] = []

    def search() -> None:
        worker.stop()
        seen.append(outcome(worker, ONE))

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    worker.close()
    assert (seen, worker.starts) == ([Outcome.OK], 2)
    assert outcome(worker, ONE) is Outcome.OK
    assert worker.starts == 2


def test_dying_while_references_are_made_is_no_candidates_fault(
    worker: SharedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = WorkerClient._send

    def killed(client: WorkerClient, message: object) -> None:
        send(client, message)
        if isinstance(message, Prepare):
            assert client._companion.process is not None
            os.kill(client._companion.process.pid, signal.SIGKILL)

    monkeypatch.setattr(WorkerClient, "_send", killed)
    worker.prepare(prepared(OP.problem(B=64, NH=16, T=1024, HS=64, dtype="fp32")))
    with pytest.raises(AutotuneError, match=r"inputs and references were not made: .* killed by SIGKILL") as caught:
        outcome(worker, ONE)
    assert not isinstance(caught.value, WorkerDied)
