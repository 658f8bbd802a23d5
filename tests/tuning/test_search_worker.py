"""The worker process: whatever a kernel does to it costs one candidate, and it never outlives its parent."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.core.errors import AutotuneError, DeviceMissing
from autotune.core.outcome import Outcome
from autotune.devices.client import WorkerClient, WorkerDied, WorkerTimeout
from autotune.devices.messages import Evaluate, Evaluated, Prepare, Retime, Retimed
from autotune.devices.protocol import TimingBudget
from autotune.gpus.identity import DeviceIdentity
from autotune.gpus.known import gpu
from tests.device_doubles import PROBLEM, LowerHalfSource, MissingOpener, PythonOpener, artifact, plan
from tests.processes import alive, eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client() -> Iterator[WorkerClient]:
    client = WorkerClient(PythonOpener())
    client.prepare(Prepare(LowerHalfSource(), PROBLEM, 7))
    yield client
    client.close()


def outcome(client: WorkerClient, kernel: str, limit_s: float = 60.0) -> Outcome:
    reply = client.ask(Evaluate(artifact(kernel), plan(), TimingBudget()), limit_s)
    assert isinstance(reply, Evaluated)
    return reply.verdict.outcome


@dataclass(frozen=True)
class ForeseeingOpener(PythonOpener):
    title: str = "h200"

    def foresee(self) -> tuple[DeviceIdentity, Mapping[str, str]]:
        return DeviceIdentity(self.kind, gpu(self.title)), {"driver": "foreseen"}


def test_what_can_be_foreseen_is_told_before_the_process_is_there() -> None:
    client = WorkerClient(ForeseeingOpener())
    assert (client.foreseen().identity.name, client.starts) == ("cpu:h200", 0)
    assert client.start().identity.name == "cpu:h200"
    assert client.foreseen().environment["driver"] == "python"
    client.close()
    other = WorkerClient(ForeseeingOpener(title="a100"))
    other.foreseen()
    with pytest.raises(AutotuneError, match="cpu:a100 was to be opened, and it is cpu:h200"):
        other.start()
    other.close()


def test_what_cannot_be_foreseen_is_opened(client: WorkerClient) -> None:
    assert (client.foreseen().environment["driver"], client.starts) == ("python", 1)


def test_it_opens_its_device_in_another_process(client: WorkerClient) -> None:
    opened = client.start()
    assert opened.identity.name == "cpu:h200"
    assert opened.environment["driver"] == "python"
    assert int(opened.environment["pid"]) != os.getpid()
    assert outcome(client, "right") is Outcome.OK
    assert outcome(client, "one_nan") is Outcome.WRONG_RESULT


def test_a_crash_a_hang_and_an_abort_cost_a_restart_each(client: WorkerClient) -> None:
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        outcome(client, "illegal")
    assert outcome(client, "right") is Outcome.OK
    with pytest.raises(WorkerDied, match=r"SIGABRT: terminate called after throwing"):
        outcome(client, "aborts")
    with pytest.raises(WorkerTimeout, match=r"no result within 0\.3 s"):
        outcome(client, "never_ends", limit_s=0.3)
    assert outcome(client, "right") is Outcome.OK
    assert client.starts == 4


def test_what_a_kernel_writes_into_the_connection_is_no_answer(client: WorkerClient) -> None:
    with pytest.raises(WorkerDied, match="wrote into its connection: UnpicklingError"):
        outcome(client, "babbles")
    with pytest.raises(WorkerDied, match="wrote into its connection: OSError"):
        outcome(client, "claims_much", limit_s=20.0)
    assert outcome(client, "right") is Outcome.OK


def test_an_unexpected_error_says_what_it_was(client: WorkerClient) -> None:
    with pytest.raises(WorkerDied, match=r"status 1: KeyError: 'no such kernel'"):
        outcome(client, "no such kernel")


def test_finalists(client: WorkerClient) -> None:
    reply = client.ask(Retime(((artifact("right"), plan()), (artifact("refuses"), plan())), 3), 60.0)
    assert isinstance(reply, Retimed)
    assert [timing is not None for timing in reply.timings] == [True, False]


@pytest.mark.parametrize(("kind", "poisoned"), [("cuda", True), ("cpu", False)])
def test_only_a_gpu_is_poisoned_by_a_failed_launch(kind: str, poisoned: bool) -> None:
    client = WorkerClient(PythonOpener(kind))
    try:
        client.prepare(Prepare(LowerHalfSource(), PROBLEM, 7))
        reply = client.ask(Evaluate(artifact("refuses"), plan(), None), 60.0)
        assert isinstance(reply, Evaluated)
        assert reply.poisoned is poisoned
    finally:
        client.close()


def test_a_missing_device_is_said_in_the_callers_process() -> None:
    client = WorkerClient(MissingOpener())
    with pytest.raises(DeviceMissing, match="no such device here"):
        client.start()
    client.close()


def test_a_worker_that_is_killed_for_good_stays_dead(client: WorkerClient) -> None:
    client.kill(for_good=True)
    with pytest.raises(AutotuneError, match=r"SIGKILL|stopped for good"):  # whether it dies before it hears of it
        outcome(client, "right")
    with pytest.raises(AutotuneError, match="stopped for good"):
        outcome(client, "right")


def test_one_that_died_while_nothing_ran_is_replaced(client: WorkerClient) -> None:
    assert outcome(client, "right") is Outcome.OK
    worker = int(client.start().environment["pid"])
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: not alive(worker))
    assert outcome(client, "right") is Outcome.OK
    assert client.starts == 2


@pytest.mark.parametrize("times", [1, 2])
def test_dying_before_it_is_asked_anything_is_no_verdict_on_what_is_asked(
    client: WorkerClient, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """While inputs and references are made again for a worker that was restarted."""
    client.stop()
    send = WorkerClient._send
    killed: list[int] = []

    def kill(client: WorkerClient, message: object) -> None:
        if isinstance(message, Prepare) and len(killed) < times:
            assert client._companion.process is not None
            killed.append(client._companion.process.pid)
            os.kill(client._companion.process.pid, signal.SIGKILL)
            eventually(lambda: not alive(killed[-1]))
        send(client, message)

    monkeypatch.setattr(WorkerClient, "_send", kill)
    if times == 1:
        assert outcome(client, "right") is Outcome.OK
    else:
        with pytest.raises(AutotuneError, match=r"does not come up, twice: .* SIGKILL") as caught:
            outcome(client, "right")
        assert not isinstance(caught.value, WorkerDied)
    assert len(killed) == times


def test_dying_before_the_question_arrives_is_none_either(
    client: WorkerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = WorkerClient._send
    killed: list[int] = []

    def kill(client: WorkerClient, message: object) -> None:
        if isinstance(message, Evaluate) and not killed:
            assert client._companion.process is not None
            killed.append(client._companion.process.pid)
            os.kill(client._companion.process.pid, signal.SIGKILL)
            eventually(lambda: not alive(killed[-1]))
        send(client, message)

    monkeypatch.setattr(WorkerClient, "_send", kill)
    assert outcome(client, "right") is Outcome.OK
    assert len(killed) == 1


def test_it_dies_with_its_parent_even_in_the_middle_of_a_kernel() -> None:
    script = """
        from autotune.devices.client import WorkerClient
        from autotune.devices.messages import Evaluate, Prepare
        from tests.device_doubles import PROBLEM, LowerHalfSource, PythonOpener, artifact, plan
        client = WorkerClient(PythonOpener())
        client.prepare(Prepare(LowerHalfSource(), PROBLEM, 7))
        print(client.start().environment["pid"], flush=True)
        client.ask(Evaluate(artifact("never_ends"), plan(), None), 60.0)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert alive(worker)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    eventually(lambda: not alive(worker))
