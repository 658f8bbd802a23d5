"""The engine's side of the worker process: start it, ask it, kill it when it hangs, start it again."""

import tempfile
import threading
from typing import IO

from autotune.core.blas import ONE_THREAD
from autotune.core.channel import LOST, Companion
from autotune.core.child import Child, signal_name
from autotune.core.confinement import part_of_environment
from autotune.core.errors import AutotuneError
from autotune.core.words import printable
from autotune.devices.factory import DeviceOpener
from autotune.devices.messages import Failed, Message, Open, Opened, Prepare, Reply

OPEN_LIMIT_S = 120.0
PREPARE_LIMIT_S = 900.0

_WHO = "the process that ran the kernel"


class WorkerTimeout(AutotuneError):
    """The worker did not answer in time; it has been killed."""


class WorkerDied(AutotuneError):
    """The worker process ended instead of answering; the message says how."""


class WorkerClient:
    """One worker process at a time, used by one thread at a time; only `kill` may be called from others."""

    patience_s: float = 1.0
    """Seconds that a candidate under way has to end in when nobody waits for it any more; then the worker is killed."""

    def __init__(self, opener: DeviceOpener) -> None:
        self._opener = opener
        self._prepared: Prepare | None = None
        self._companion = Companion("autotune.devices.worker")
        try:
            self._keep = tempfile.TemporaryFile(prefix="autotune-expected-")  # noqa: SIM115 - lives as the client
            self._log = tempfile.TemporaryFile(prefix="autotune-worker-")  # noqa: SIM115
        except OSError as error:
            raise AutotuneError(f"no temporary file can be made: {error}; set TMPDIR to a folder of yours") from error
        self.opened: Opened | None = None
        self._foreseen: Opened | None = None
        self.starts = 0

    def start(self, ahead: Prepare | None = None) -> Opened:
        """Start the process and open the device, unless that is done; then repeat the last `prepare`.

        `ahead`: what will be asked of `prepare`; its references are made while the device opens.

        Raises:
            AutotuneError: what the device raised (DeviceMissing), or the worker did not come up.
        """
        if self._ended_by_itself():
            self.stop()
        if self._companion.process is not None and self.opened is not None:
            return self.opened
        self._spawn(self._prepared or ahead)
        reply = self._receive(OPEN_LIMIT_S)
        if not isinstance(reply, Opened):
            raise AutotuneError(f"the worker answered {type(reply).__name__} when it was to open the device")
        if self._foreseen is not None and reply.identity != self._foreseen.identity:
            raise AutotuneError(f"{self._foreseen.identity.name} was to be opened, and it is {reply.identity.name}")
        self.opened = reply
        if self._prepared is not None:
            self._ask(self._prepared, PREPARE_LIMIT_S)
        return reply

    def foreseen(self) -> Opened:
        """What `start` answers, where that can be told without waiting for the process; else it is started.

        Raises:
            AutotuneError: as `start`.
        """
        if self.opened is None:
            foreseen = self._opener.foresee()
            if foreseen is None:
                return self.start()
            self._foreseen = Opened(*foreseen, self._opener.why_no_energy())
        return self.opened or self._foreseen or self.start()

    def prepare(self, message: Prepare) -> None:
        """Have inputs and references made; a restarted worker does so again by itself (from what was kept)."""
        self.start()
        self._ask(message, PREPARE_LIMIT_S)
        self._prepared = message

    def ask(self, message: Message, limit_s: float) -> Reply:
        """Send a message and wait for the answer; starts the worker if it is not running.

        Raises:
            WorkerTimeout: no answer within `limit_s` seconds.
            WorkerDied: the process ended.
            AutotuneError: the worker reported an error that is no candidate's fault.
        """
        self._come_up()
        try:
            self._send(message)
        except WorkerDied:  # before it heard of it
            self._come_up()
            self._send(message)
        return self._receive(limit_s)

    def stop(self) -> None:
        """Kill the worker and all its processes; the next `ask` starts a new one."""
        self._companion.close()

    def kill(self, *, for_good: bool = False) -> None:
        """Kill the worker while another thread may be waiting for it, which then sees it dead.

        After `for_good` no new one is started.
        """
        self._companion.kill(for_good=for_good)

    def close(self) -> None:
        """Stop, and drop what was kept for restarts."""
        self.stop()
        self._keep.close()
        self._log.close()

    def _come_up(self) -> None:
        """As `start`; what happens to the process before it is asked anything is the fault of nothing that is asked."""
        try:
            self.start()
            return
        except (WorkerTimeout, WorkerDied):
            pass
        try:
            self.start()
        except (WorkerTimeout, WorkerDied) as error:
            raise AutotuneError(f"the process that runs kernels does not come up, twice: {error}") from error

    def _ended_by_itself(self) -> bool:
        """Whether the process has ended while nothing was asked of it, which is no verdict on what will be."""
        process = self._companion.process
        return process is not None and not process.killed and process.wait(0.0) is not None

    def _spawn(self, ahead: Prepare | None) -> None:
        keep = self._keep.fileno()
        _empty(self._log)
        try:
            self._companion.start(arguments=[str(keep)], environment=_environment(), stderr=self._log, files=[keep])
        except OSError as error:
            raise AutotuneError(f"the process that runs kernels cannot be started: {error}") from error
        self.starts += 1
        self._send(Open(self._opener, ahead))

    def _ask(self, message: Message, limit_s: float) -> Reply:
        self._send(message)
        return self._receive(limit_s)

    def _send(self, message: object) -> None:
        assert self._companion.connection is not None
        try:
            self._companion.connection.send(message)
        except LOST:
            raise self._death() from None

    def _receive(self, limit_s: float) -> Reply:
        assert self._companion.connection is not None
        try:
            if not self._companion.connection.poll(limit_s):
                self.stop()
                raise WorkerTimeout(f"no result within {limit_s:.3g} s")
            reply = self._read(limit_s)
        except LOST:
            raise self._death() from None
        if isinstance(reply, Failed):
            self.stop()
            raise reply.error
        return reply

    def _read(self, limit_s: float) -> Reply:
        """The message that has begun to arrive. A kernel may have written it, so it may never end, or be nonsense."""
        assert self._companion.connection is not None
        watch = threading.Timer(limit_s, self.kill)
        watch.daemon = True
        watch.start()
        try:
            reply = self._companion.connection.recv()
        except LOST:
            raise
        except Exception as error:
            self.stop()
            raise WorkerDied(f"{_WHO} wrote into its connection: {type(error).__name__}") from error
        finally:
            watch.cancel()
        if not isinstance(reply, Reply):
            self.stop()
            raise WorkerDied(f"{_WHO} wrote into its connection")
        return reply

    def _death(self) -> WorkerDied:
        assert self._companion.process is not None
        how = _how(self._companion.process)
        said = _last_line(self._log)
        self.stop()
        return WorkerDied(how + (f": {said}" if said else ""))


def _environment() -> dict[str, str]:
    # A thread a core makes references; threads of BLAS beside them wait for one another, spinning: two each on 16 cores
    # took twelve times the processor time, from the compilers as well.
    return {**ONE_THREAD, **part_of_environment()}


def _how(process: Child) -> str:
    """How a child that closed its connection ended."""
    status = process.wait(5.0)
    if status is None:
        return f"{_WHO} closed its connection"
    return f"{_WHO} was killed by {signal_name(status)}" if status < 0 else f"{_WHO} ended with status {status}"


def _empty(file: IO[bytes]) -> None:
    file.seek(0)
    file.truncate()


def _last_line(file: IO[bytes]) -> str:
    """The last line of an exception or an abort message; a faulthandler's stack is left out."""
    file.seek(0)
    text = file.read().decode(errors="replace").split("Fatal Python error")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(lines[-1][:300]) if lines else ""
