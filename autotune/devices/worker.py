"""The process that owns the device: `python -m autotune.devices.worker KEEP`.

It answers one message at a time over one connection. Whatever a kernel does to it (an illegal access, a hang, an
abort) is the client's to notice: `autotune.devices.client`.
"""

import faulthandler
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import BinaryIO

from autotune.core.channel import LOST, open_channel
from autotune.core.confinement import confine
from autotune.core.errors import AutotuneError
from autotune.core.outcome import Outcome
from autotune.devices.device_comparison import Making
from autotune.devices.emulated import CpuDevice
from autotune.devices.factory import CudaOpener
from autotune.devices.measure import Bench
from autotune.devices.messages import (
    Evaluate,
    Evaluated,
    Failed,
    Meter,
    Metering,
    Open,
    Opened,
    Prepare,
    Prepared,
    Reply,
    Retime,
    Retimed,
)
from autotune.devices.protocol import Device, Metered
from autotune.gpus.identity import DEVICES
from autotune.ops.expected import Expectation, expectations, load, save
from autotune.ops.op import Op


@dataclass
class _Server:
    """The device, the problem's bench once prepared, the file that keeps expectations across restarts, and those that
    were begun before the device was open."""

    device: Device
    keep: BinaryIO
    begun: "_Begun | None" = None
    bench: Bench | None = None

    def answer(self, message: object) -> Reply:
        if isinstance(message, Prepare):
            op, making = message.op.resolve(), Making(self.device)
            try:
                self.bench = Bench(self.device, op, *self._expectations(op, message), making=making)
            except MemoryError as error:
                raise AutotuneError(f"{message.problem} is too large for this machine: {error}") from error
            return Prepared()
        if self.bench is None:
            raise AutotuneError("the worker was asked to evaluate before it was prepared")
        if isinstance(message, Evaluate):
            return self._evaluate(self.bench, message)
        if isinstance(message, Retime):
            return Retimed(self.bench.retime(message.programs, message.rounds))
        if isinstance(message, Meter):
            return Metering(self.bench.meter(message.programs, message.rounds, message.seconds))
        raise AutotuneError(f"the worker does not know the message {type(message).__name__}")

    def _evaluate(self, bench: Bench, message: Evaluate) -> Evaluated:
        start = time.perf_counter()
        verdict = bench.evaluate(
            message.artifact,
            message.plan,
            message.budget,
            deterministic=message.deterministic,
            placements=message.placements,
        )
        if message.far and verdict.outcome is Outcome.OK and isinstance(self.device, CpuDevice):
            verdict = bench.move_away(self.device, message.artifact, message.plan, verdict)
        poisoned = verdict.outcome is Outcome.LAUNCH_ERROR and DEVICES[self.device.identity.kind].dies
        return Evaluated(verdict, time.perf_counter() - start, poisoned)

    def _expectations(self, op: Op, message: Prepare) -> tuple[Expectation, ...]:
        begun, self.begun = self.begun, None
        made = None if begun is None else begun.making.result()  # the file is this thread's again
        if begun is not None and made is not None and begun.message == message:
            return made
        return _make(self.keep, op, message)


@dataclass(frozen=True)
class _Begun:
    """Expectations that are being made; None for those that could not be."""

    message: Prepare
    making: "Future[tuple[Expectation, ...] | None]"


def _make(keep: BinaryIO, op: Op, message: Prepare) -> tuple[Expectation, ...]:
    """Those that an earlier worker left, if they are of this problem."""
    kept = load(keep)
    if kept is None or kept[0].problem != message.problem:
        kept = expectations(op, message.problem, message.seed)
        save(kept, keep)
    return kept


def _begin(keep: BinaryIO, message: Prepare) -> _Begun:
    def make() -> tuple[Expectation, ...] | None:
        try:
            return _make(keep, message.op.resolve(), message)
        except Exception:  # noqa: BLE001 - who asks for them meets it again, where it is answered
            return None

    return _Begun(message, ThreadPoolExecutor(1).submit(make))


def serve(connection: Connection, keep: BinaryIO) -> None:
    """Open the device that the first messages describe, then answer until the other end closes.

    An unexpected exception ends the process; its traceback is what the client reports.
    """
    try:
        message: Open = connection.recv()
        confine(memory=not isinstance(message.opener, CudaOpener))
        begun = None if message.ahead is None else _begin(keep, message.ahead)
        server = _Server(message.opener.open(), keep, begun)
        device = server.device
        no_energy = device.why_no_energy() if isinstance(device, Metered) else "it does not run on a GPU"
        connection.send(Opened(device.identity, dict(device.environment()), no_energy))
        while True:
            connection.send(server.answer(connection.recv()))
    except AutotuneError as error:
        connection.send(Failed(error))
    except LOST:
        pass  # the parent is done with us


def main() -> None:
    """Entry point of the worker process."""
    faulthandler.enable()
    with os.fdopen(int(sys.argv[1]), "r+b") as keep:
        serve(open_channel(), keep)


if __name__ == "__main__":
    main()
