"""A worker process that several searches use one after the other: starting it and making references takes seconds."""

from autotune.core.errors import AutotuneError
from autotune.devices.client import WorkerClient, WorkerDied, WorkerTimeout
from autotune.devices.factory import DeviceOpener
from autotune.devices.messages import Message, Prepare, Reply


class SharedWorker(WorkerClient):
    """Stays alive when a search closes it; `end` closes it for good."""

    patience_s = 6.0  # a new worker would take longer

    def __init__(self, opener: DeviceOpener) -> None:
        super().__init__(opener)
        self._ready: tuple[Prepare, int] | None = None
        self._wanted: Prepare | None = None
        self._busy = False

    def prepare(self, message: Prepare) -> None:
        """Says what the next questions are about; it is made ready with the first of them, if there is one at all."""
        self._wanted = message

    def ask(self, message: Message, limit_s: float) -> Reply:
        """As `WorkerClient.ask`, after inputs and references have been made, unless this very process has them."""
        self._busy = True
        try:
            self.start()
            if self._wanted is not None and self._ready != (self._wanted, self.starts):
                self._prepare(self._wanted)
            return super().ask(message, limit_s)
        finally:
            self._busy = False

    def kill(self, *, for_good: bool = False) -> None:
        """Kill the worker; at the end of a search only if it is still busy."""
        if not for_good or self._busy:
            super().kill()

    def close(self) -> None:
        """The end of a search, which is not the worker's."""

    def end(self) -> None:
        """Stop, and drop what was kept."""
        super().close()

    def _prepare(self, message: Prepare) -> None:
        try:
            super().prepare(message)
        except (WorkerDied, WorkerTimeout) as error:  # which would look like the fault of the candidate asked about
            raise AutotuneError(f"inputs and references were not made: {error}") from error
        self._ready = message, self.starts
